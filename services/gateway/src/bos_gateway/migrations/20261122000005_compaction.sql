-- migrate:up

-- Sequences whose AnswerDelta events were removed after the end; null until that was done. A gap in
-- a log is whole if and only if it is named here.
ALTER TABLE runs ADD COLUMN compacted int8multirange;
COMMENT ON COLUMN runs.compacted IS 'sequences of removed AnswerDelta events; null: not compacted';

CREATE INDEX runs_uncompacted ON runs (finished_at)
    WHERE finished_at IS NOT NULL AND compacted IS NULL;
CREATE INDEX runs_by_end ON runs (finished_at) WHERE finished_at IS NOT NULL;

-- migrate:down
DROP INDEX runs_by_end, runs_uncompacted;
ALTER TABLE runs DROP COLUMN compacted;
