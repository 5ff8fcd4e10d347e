-- migrate:up

-- An answer with new tokens may be lost. Until its token is used, it can be asked for again.
ALTER TABLE refresh_tokens ADD COLUMN successor_digest bytea;
COMMENT ON COLUMN refresh_tokens.successor_digest IS
    'Token that was issued for this one, the last of them; null: none yet, or replaced by another';

-- migrate:down
ALTER TABLE refresh_tokens DROP COLUMN successor_digest;
