-- migrate:up

-- Credentials that came with a question, for as long as its run is under way. A table of its own:
-- the log is kept, shown and exported, these never.
CREATE TABLE run_secrets (
    run_id     uuid PRIMARY KEY REFERENCES runs ON DELETE CASCADE,
    key_id     text NOT NULL,
    ciphertext bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON COLUMN run_secrets.key_id IS 'which of BOS_GATEWAY_SECRETS_KEYS encrypted it';
COMMENT ON COLUMN run_secrets.ciphertext IS 'nonce and AES-256-GCM of a JSON object, bound to run_id';

-- migrate:down
DROP TABLE run_secrets;
