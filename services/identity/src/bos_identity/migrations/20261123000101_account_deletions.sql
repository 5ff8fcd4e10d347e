-- allow constraint-missing-not-valid: no release holds this table
-- migrate:up

ALTER TABLE users
    ADD COLUMN deleting boolean NOT NULL DEFAULT false,
    ADD CONSTRAINT deleting_users_are_closed CHECK (NOT deleting OR deactivated_at IS NOT NULL);
COMMENT ON COLUMN users.deleting IS 'goes with all that services hold of it; its name is taken until then';
GRANT SELECT (deleting) ON users TO bos_identity_reader;

-- Accounts on their way out. The row goes with the account, in the last step.
CREATE TABLE account_deletions (
    user_id      uuid PRIMARY KEY REFERENCES users ON DELETE CASCADE,
    requested_at timestamptz NOT NULL DEFAULT now(),
    ends_at      timestamptz NOT NULL,
    erased_at    timestamptz,
    next_at      timestamptz NOT NULL DEFAULT now(),
    failures     integer NOT NULL DEFAULT 0,
    waiting_for  text NOT NULL DEFAULT ''
);
COMMENT ON COLUMN account_deletions.ends_at IS
    'from when on no access token of the account can be valid: what came in until then goes, too';
COMMENT ON COLUMN account_deletions.erased_at IS 'when all services had deleted what they held, at first';
COMMENT ON COLUMN account_deletions.next_at IS 'when to go on; the replica that goes on moves it, and so keeps others away';
CREATE INDEX account_deletions_by_turn ON account_deletions (next_at);
ALTER TABLE account_deletions ENABLE ROW LEVEL SECURITY;

-- migrate:down
DROP TABLE account_deletions;
ALTER TABLE users DROP COLUMN deleting;
