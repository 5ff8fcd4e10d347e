-- migrate:up

-- Without a policy: for the owner alone, regardless of later grants.
ALTER TABLE refresh_tokens ENABLE ROW LEVEL SECURITY;

-- migrate:down
ALTER TABLE refresh_tokens DISABLE ROW LEVEL SECURITY;
