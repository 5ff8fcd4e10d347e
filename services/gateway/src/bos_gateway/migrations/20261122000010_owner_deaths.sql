-- migrate:up

-- How many owners have died one after the other, counted by whoever takes over, in the statement
-- that does it: also an adopter is counted that dies before it could write anything to the log.
ALTER TABLE runs ADD COLUMN deaths integer NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN deaths_after bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN runs.deaths IS 'owners that died without the run getting further';
COMMENT ON COLUMN runs.deaths_after IS 'sequence of the last event that counts as getting further';

-- migrate:down
ALTER TABLE runs DROP COLUMN deaths, DROP COLUMN deaths_after;
