-- migrate:up

CREATE TABLE connections (
    user_id       uuid NOT NULL REFERENCES users ON DELETE CASCADE,
    kind          text NOT NULL,
    label         text NOT NULL,
    fields        jsonb NOT NULL,
    sealed_secret bytea NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT now(),
    updated_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (user_id, kind)
);
COMMENT ON COLUMN connections.sealed_secret IS
    'encrypted by BOS_IDENTITY_KEY_ENCRYPTION_KEYS, with user and kind inside: it opens in no other row';
GRANT SELECT (user_id, kind, label, fields, created_at, updated_at)
    ON connections TO bos_identity_reader;
GRANT DELETE ON connections TO bos_identity_reader;
ALTER TABLE connections ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_connections ON connections TO bos_identity_reader
    USING (user_id = nullif(current_setting('bos.user_id', true), '')::uuid);

-- migrate:down
DROP TABLE connections;
