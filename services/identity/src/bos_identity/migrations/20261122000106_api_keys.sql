-- migrate:up

CREATE TABLE api_keys (
    key_id        uuid PRIMARY KEY,
    user_id       uuid NOT NULL REFERENCES users ON DELETE CASCADE,
    name          text NOT NULL,
    secret_digest bytea NOT NULL,
    scopes        text[] NOT NULL CHECK (cardinality(scopes) > 0),
    created_by    uuid NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT now(),
    expires_at    timestamptz NOT NULL,
    last_used_at  timestamptz,
    revoked_at    timestamptz
);
COMMENT ON COLUMN api_keys.secret_digest IS 'SHA-256 of the secret, which is 32 random bytes';
COMMENT ON COLUMN api_keys.last_used_at IS 'to the hour, so that a busy key is seldom written';
CREATE INDEX api_keys_by_user ON api_keys (user_id, created_at DESC);
CREATE INDEX api_keys_by_expiry ON api_keys (expires_at);
GRANT SELECT (key_id, user_id, name, scopes, created_at, expires_at, last_used_at, revoked_at)
    ON api_keys TO bos_identity_reader;
GRANT UPDATE (revoked_at) ON api_keys TO bos_identity_reader;
ALTER TABLE api_keys ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_keys ON api_keys TO bos_identity_reader
    USING (user_id = nullif(current_setting('bos.user_id', true), '')::uuid);

-- migrate:down
DROP TABLE api_keys;
