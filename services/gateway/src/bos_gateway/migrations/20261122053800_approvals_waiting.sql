-- migrate:up

-- What the waiting requests are about, so that counting them reads an index and no request. Rows of
-- earlier versions have neither; they are counted as of nobody.
ALTER TABLE approvals
    ADD COLUMN agent_name text NOT NULL DEFAULT '',
    ADD COLUMN tools text NOT NULL DEFAULT '';
COMMENT ON COLUMN approvals.tools IS 'names of the tools that would be used, sorted, comma-separated';

CREATE INDEX approvals_waiting ON approvals (agent_name, tools) INCLUDE (created_at) WHERE status = 1;

-- migrate:down
DROP INDEX approvals_waiting;
ALTER TABLE approvals DROP COLUMN agent_name, DROP COLUMN tools;
