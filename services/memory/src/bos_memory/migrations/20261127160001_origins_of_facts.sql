-- migrate:up
ALTER TABLE user_long_term_memory ADD COLUMN origins jsonb NOT NULL DEFAULT '{}';
COMMENT ON COLUMN user_long_term_memory.origins IS
    'where each fact came from, by field or by field and value; facts from before have none';

-- migrate:down
ALTER TABLE user_long_term_memory DROP COLUMN origins;
