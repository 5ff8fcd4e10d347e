-- migrate:up

-- An attempt counts from its beginning. If its end is not recorded, because the process died, it
-- stops counting.
ALTER TABLE login_throttle
    ADD COLUMN under_way       integer NOT NULL DEFAULT 0,
    ADD COLUMN under_way_until timestamptz NOT NULL DEFAULT '-infinity';
COMMENT ON COLUMN login_throttle.under_way IS 'Attempts that are not decided yet, beside the failures';

-- Where the owner of an account signed in before, guesses of others cannot make the owner wait.
ALTER TABLE sessions ADD COLUMN client_network text NOT NULL DEFAULT '';
COMMENT ON COLUMN sessions.client_network IS 'IPv4 address, or the network of one IPv6 site; empty: not known';
COMMENT ON COLUMN sessions.end_reason IS
    'logged_out, revoked, password_changed, password_reset, deactivated, too_many or token_reused';

-- migrate:down
ALTER TABLE login_throttle DROP COLUMN under_way, DROP COLUMN under_way_until;
ALTER TABLE sessions DROP COLUMN client_network;
