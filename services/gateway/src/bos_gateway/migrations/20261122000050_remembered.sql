-- migrate:up

-- Turns that memory was not told of yet: found before a question that follows them up is planned,
-- and by whoever looks for what an owner left behind. Without memory nobody asks.
ALTER TABLE runs ADD COLUMN remembered_at timestamptz;
COMMENT ON COLUMN runs.remembered_at IS 'when memory had stored the turn, or refused it for good';

CREATE INDEX runs_unremembered_by_conversation ON runs (user_id, conversation_id)
    WHERE finished_at IS NOT NULL AND remembered_at IS NULL AND conversation_id <> '';
CREATE INDEX runs_unremembered ON runs (finished_at)
    WHERE finished_at IS NOT NULL AND remembered_at IS NULL AND conversation_id <> '';

-- migrate:down
DROP INDEX runs_unremembered, runs_unremembered_by_conversation;
ALTER TABLE runs DROP COLUMN remembered_at;
