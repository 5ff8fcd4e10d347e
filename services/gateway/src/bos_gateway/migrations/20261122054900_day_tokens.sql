-- migrate:up

-- What counts of a run against its day: held when it is accepted, and when it ends what its log
-- counted. Null for runs that no bound of a day holds for.
ALTER TABLE runs ADD COLUMN token_day date, ADD COLUMN day_tokens bigint;
COMMENT ON COLUMN runs.token_day IS 'UTC day on which it was accepted, by the clock of the database';

-- The sum of that by day and user, and of everybody ('') by day: adding up the runs of a day for
-- every question would take longer with each of them. Written by the statements that write `runs`.
CREATE TABLE token_days (
    day     date NOT NULL,
    user_id text NOT NULL,
    tokens  bigint NOT NULL,
    PRIMARY KEY (day, user_id)
);
COMMENT ON COLUMN token_days.user_id IS 'empty for everybody together';
-- One row is changed by every question and every end of the day; with room it stays in its page.
ALTER TABLE token_days SET (fillfactor = 50);
-- Without a policy: for the owner alone.
ALTER TABLE token_days ENABLE ROW LEVEL SECURITY;

-- As unfinished_runs, with what was spent of a day; the empty user is everybody.
CREATE FUNCTION admission_of(of_user text, of_day date)
RETURNS TABLE (active bigint, waiting bigint, tokens bigint)
LANGUAGE sql VOLATILE AS $$
    SELECT pg_advisory_xact_lock(20261122, hashtext(of_user));
    SELECT count(*) FILTER (WHERE r.status <> 4), count(*) FILTER (WHERE r.status = 4),
           coalesce((SELECT d.tokens FROM token_days AS d
                     WHERE d.day = of_day AND d.user_id = of_user), 0)
    FROM runs AS r WHERE r.user_id = of_user AND r.finished_at IS NULL;
$$;
COMMENT ON FUNCTION admission_of IS '4 is RUN_STATUS_WAITING_FOR_APPROVAL; needs READ COMMITTED';

-- migrate:down
DROP FUNCTION admission_of;
DROP TABLE token_days;
ALTER TABLE runs DROP COLUMN token_day, DROP COLUMN day_tokens;
