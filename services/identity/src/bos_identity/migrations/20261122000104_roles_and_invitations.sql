-- allow constraint-missing-not-valid: no release holds this table
-- allow ban-drop-not-null: no release reads this column
-- allow changes-stored-rows: one row, of the first account
-- migrate:up

ALTER TABLE users
    ADD COLUMN roles          text[] NOT NULL DEFAULT '{user}'
        CHECK (roles <@ '{user,approver,operator,administrator}'),
    ADD COLUMN groups         text[] NOT NULL DEFAULT '{}' CHECK (cardinality(groups) <= 32),
    ADD COLUMN is_service     boolean NOT NULL DEFAULT false,
    ADD COLUMN deactivated_at timestamptz,
    ADD CONSTRAINT services_are_no_administrators
        CHECK (NOT is_service OR (password IS NULL AND NOT roles @> '{administrator}'));
COMMENT ON COLUMN users.is_service IS 'stands for a service: no password, no e-mail address, API keys only';
COMMENT ON COLUMN users.deactivated_at IS 'since when it may not be used; null: it may be used';
ALTER TABLE users ALTER COLUMN email DROP NOT NULL;
GRANT SELECT (roles, groups, is_service, deactivated_at) ON users TO bos_identity_reader;

-- Who was first, and so the administrator: one row, permanent, regardless of what becomes of that account.
CREATE TABLE founder (
    is_only    boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    founder_id uuid NOT NULL,
    founded_at timestamptz NOT NULL DEFAULT now()
);
ALTER TABLE founder ENABLE ROW LEVEL SECURITY;
-- Accounts that were there before roles: the oldest one, not the one that registers next.
INSERT INTO founder (founder_id)
    SELECT user_id FROM users WHERE password IS NOT NULL ORDER BY created_at, user_id LIMIT 1;
UPDATE users SET roles = '{user,administrator}' FROM founder WHERE user_id = founder_id;

CREATE TABLE invitations (
    invitation_id uuid PRIMARY KEY,
    code_digest   bytea NOT NULL UNIQUE,
    roles         text[] NOT NULL,
    groups        text[] NOT NULL,
    created_by    uuid NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT now(),
    expires_at    timestamptz NOT NULL,
    used_by       uuid
);
COMMENT ON COLUMN invitations.code_digest IS 'SHA-256 of the code, which is 32 random bytes';
CREATE INDEX invitations_by_expiry ON invitations (expires_at);
ALTER TABLE invitations ENABLE ROW LEVEL SECURITY;

CREATE TABLE password_resets (
    code_digest bytea PRIMARY KEY,
    user_id     uuid NOT NULL UNIQUE REFERENCES users ON DELETE CASCADE,
    created_by  uuid NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    expires_at  timestamptz NOT NULL
);
COMMENT ON TABLE password_resets IS 'Codes that set a new password once; the last one of each account';
CREATE INDEX password_resets_by_expiry ON password_resets (expires_at);
ALTER TABLE password_resets ENABLE ROW LEVEL SECURITY;

-- migrate:down
DROP TABLE password_resets, invitations, founder;
UPDATE users SET email = user_id::text WHERE email IS NULL;
ALTER TABLE users ALTER COLUMN email SET NOT NULL;
ALTER TABLE users DROP COLUMN roles, DROP COLUMN groups, DROP COLUMN is_service,
    DROP COLUMN deactivated_at;
