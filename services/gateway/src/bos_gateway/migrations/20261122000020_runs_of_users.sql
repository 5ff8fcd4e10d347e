-- migrate:up

CREATE INDEX runs_unfinished_by_user ON runs (user_id, status) WHERE finished_at IS NULL;

-- Counts the unfinished runs of a user and keeps everybody else from accepting one for that user
-- until the end of this transaction. Each statement of a VOLATILE function looks anew, so what the
-- last holder of the lock has committed is counted; the statement that calls it would not see it.
CREATE FUNCTION unfinished_runs(of_user text) RETURNS TABLE (active bigint, waiting bigint)
LANGUAGE sql VOLATILE AS $$
    SELECT pg_advisory_xact_lock(20261122, hashtext(of_user));
    SELECT count(*) FILTER (WHERE status <> 4), count(*) FILTER (WHERE status = 4)
    FROM runs WHERE user_id = of_user AND finished_at IS NULL;
$$;
COMMENT ON FUNCTION unfinished_runs IS '4 is RUN_STATUS_WAITING_FOR_APPROVAL; needs READ COMMITTED';

-- migrate:down
DROP FUNCTION unfinished_runs;
DROP INDEX runs_unfinished_by_user;
