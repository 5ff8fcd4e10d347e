-- migrate:up

-- One row per gateway process. A replica whose lease has run out is dead or cut off.
CREATE TABLE replicas (
    replica_id  uuid PRIMARY KEY,
    lease_until timestamptz NOT NULL,
    started_at  timestamptz NOT NULL DEFAULT now()
);

-- What must be found without reading a log: ownership, idempotency and lists. No index names a
-- column that changes while a run is under way, and pages have room, so those changes stay in their
-- page and touch no index (HOT).
CREATE TABLE runs (
    run_id          uuid PRIMARY KEY,
    user_id         text NOT NULL,
    request_id      text NOT NULL,
    request_digest  bytea NOT NULL,
    conversation_id text NOT NULL DEFAULT '',
    question        text NOT NULL,
    status          smallint NOT NULL,
    last_sequence   bigint NOT NULL DEFAULT 1,
    replica_id      uuid,
    epoch           bigint NOT NULL DEFAULT 1,
    failures        integer NOT NULL DEFAULT 0,
    failures_after  bigint NOT NULL DEFAULT 0,
    retry_at        timestamptz NOT NULL DEFAULT now(),
    unreadable_since timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    finished_at     timestamptz,
    remembered_at   timestamptz,
    tokens          bigint,
    has_files       boolean NOT NULL DEFAULT false,
    outcome         smallint GENERATED ALWAYS AS
                    (CASE WHEN finished_at IS NOT NULL THEN status END) STORED,
    token_day       date,
    UNIQUE (user_id, request_id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
COMMENT ON COLUMN runs.status IS 'number of bos.gateway.v1.RunStatus';
COMMENT ON COLUMN runs.last_sequence IS 'where its log ends; an append must begin just behind it';
COMMENT ON COLUMN runs.replica_id IS 'owner; null when released or waiting for a person';
COMMENT ON COLUMN runs.epoch IS 'fencing: grows with every change of owner';
COMMENT ON COLUMN runs.failures IS 'owners that died or let go in trouble, without the run getting further';
COMMENT ON COLUMN runs.failures_after IS 'sequence of the last event that counts as getting further';
COMMENT ON COLUMN runs.retry_at IS 'of a run without an owner: when it is due; infinity: it waits for an approver';
COMMENT ON COLUMN runs.unreadable_since IS 'since when replicas that adopt it cannot read its log';
COMMENT ON COLUMN runs.remembered_at IS 'when memory had stored the turn, or refused it for good';
COMMENT ON COLUMN runs.tokens IS 'the budget of the run, from its end on what its log counted';
COMMENT ON COLUMN runs.outcome IS 'status of a run that has ended, for an index: it changes with the end alone';
COMMENT ON COLUMN runs.has_files IS 'the artefact store may hold files of it';
COMMENT ON COLUMN runs.token_day IS 'UTC day whose sum lacks these tokens; null: none';

CREATE INDEX runs_by_user ON runs (user_id, created_at DESC, run_id DESC);
CREATE INDEX runs_by_conversation ON runs (user_id, conversation_id, created_at DESC, run_id DESC)
    WHERE conversation_id <> '';
CREATE INDEX runs_released ON runs (retry_at)
    WHERE finished_at IS NULL AND replica_id IS NULL AND retry_at < 'infinity';
CREATE INDEX runs_by_replica ON runs (replica_id)
    WHERE finished_at IS NULL AND replica_id IS NOT NULL;
CREATE INDEX runs_unfinished_by_user ON runs (user_id, created_at DESC, run_id DESC)
    WHERE finished_at IS NULL;
CREATE INDEX runs_by_outcome ON runs (user_id, outcome, created_at DESC, run_id DESC)
    WHERE outcome IS NOT NULL;
CREATE INDEX runs_by_end ON runs (finished_at) WHERE finished_at IS NOT NULL;
-- Tokens that are in no sum of a day yet: what is under way, and what ended since the last upkeep.
CREATE INDEX runs_unsettled ON runs (token_day, user_id) INCLUDE (tokens)
    WHERE token_day IS NOT NULL;
CREATE INDEX runs_to_settle ON runs (run_id)
    WHERE token_day IS NOT NULL AND finished_at IS NOT NULL;
-- Turns not sent to memory yet: found before a question that follows them up is planned, and by the
-- periodic search for what a dead owner left behind. Unused without memory.
CREATE INDEX runs_unremembered_by_conversation ON runs (user_id, conversation_id)
    WHERE finished_at IS NOT NULL AND remembered_at IS NULL AND conversation_id <> '';
CREATE INDEX runs_unremembered ON runs (finished_at)
    WHERE finished_at IS NOT NULL AND remembered_at IS NULL AND conversation_id <> '';

-- The log. Append-only; a run is the ordered list of its events.
CREATE TABLE run_events (
    run_id         uuid NOT NULL REFERENCES runs ON DELETE CASCADE,
    sequence       bigint NOT NULL CHECK (sequence > 0),
    event_id       uuid NOT NULL,
    epoch          bigint NOT NULL,
    kind           text NOT NULL,
    schema_version integer NOT NULL,
    payload        bytea NOT NULL,
    created_at     timestamptz NOT NULL,
    step_id        text,
    PRIMARY KEY (run_id, sequence)
    -- A fifth of a large table, as is usual, would be dead before its room is used again.
) WITH (autovacuum_vacuum_scale_factor = 0.02);
COMMENT ON COLUMN run_events.payload IS 'bos.runlog.v1.LogEvent';
COMMENT ON COLUMN run_events.step_id IS 'step of which this begins or ends an attempt';
-- Payloads are read whole and seldom; compressing them costs CPU on the hot path.
ALTER TABLE run_events ALTER COLUMN payload SET STORAGE EXTERNAL;

-- Agents' cards as runs were accepted with them, one row for all that had the same. Rows are few,
-- and stay.
CREATE TABLE cards (
    digest     bytea PRIMARY KEY,
    payload    bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON COLUMN cards.payload IS 'a bos.runlog.v1.RunAccepted that holds nothing else';

-- What others want of a run. The owner turns each row into exactly one event.
CREATE TABLE run_inputs (
    run_id     uuid NOT NULL REFERENCES runs ON DELETE CASCADE,
    kind       text NOT NULL,
    input_key  text NOT NULL DEFAULT '',
    payload    bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (run_id, kind, input_key)
);
COMMENT ON COLUMN run_inputs.payload IS 'the bos.runlog.v1.LogEvent to append';

-- Texts of answers that are being written, while a client follows their runs on another replica than
-- their owner. Overwritten again and again, so pages have room; lost with PostgreSQL, and written
-- again. Without a foreign key, so that no locked row of another run holds them up.
CREATE UNLOGGED TABLE answers (
    run_id     uuid PRIMARY KEY,
    epoch      bigint NOT NULL,
    attempt    integer NOT NULL,
    sequence   bigint NOT NULL,
    text       text NOT NULL,
    characters integer NOT NULL
) WITH (fillfactor = 50);
COMMENT ON COLUMN answers.epoch IS 'of the run when this was written; with any other it is void';
COMMENT ON COLUMN answers.sequence IS 'of the AnswerStarted event of the attempt';
ALTER TABLE answers ALTER COLUMN text SET STORAGE EXTERNAL;

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

-- Requests to people, for finding and deciding them. The statement that appends ApprovalRequested to
-- a log writes the row; deciding is one compare-and-set on its status, which also leaves the run its
-- input; the statement that ends a run closes what is still open.
CREATE TABLE approvals (
    approval_id  uuid PRIMARY KEY,
    run_id       uuid NOT NULL REFERENCES runs ON DELETE CASCADE,
    user_id      text NOT NULL,
    status       smallint NOT NULL,
    instructions text NOT NULL DEFAULT '',
    payload      bytea NOT NULL,
    agent_name   text NOT NULL,
    tools        text NOT NULL,
    approvers    text[] NOT NULL DEFAULT '{}',
    shared       boolean GENERATED ALWAYS AS (cardinality(approvers) > 0) STORED,
    created_at   timestamptz NOT NULL,
    expire_at    timestamptz NOT NULL,
    responded_at timestamptz,
    decided_by   text NOT NULL DEFAULT ''
);
COMMENT ON COLUMN approvals.status IS 'number of bos.gateway.v1.ApprovalStatus; 1 is PENDING';
COMMENT ON COLUMN approvals.payload IS 'bos.gateway.v1.Approval as it was requested';
COMMENT ON COLUMN approvals.approvers IS 'who may answer beside the user: role:NAME and group:NAME';
COMMENT ON COLUMN approvals.shared IS 'whether a user beside the owner may answer, for an index';
COMMENT ON COLUMN approvals.decided_by IS 'user that decided; empty: undecided';
COMMENT ON COLUMN approvals.tools IS 'names of the tools that would be used, sorted, comma-separated';

CREATE INDEX approvals_by_user ON approvals (user_id, created_at DESC, approval_id DESC);
CREATE INDEX approvals_by_status ON approvals (user_id, status, created_at DESC, approval_id DESC);
CREATE INDEX approvals_shared ON approvals (created_at DESC, approval_id DESC) WHERE shared;
CREATE INDEX approvals_due ON approvals (expire_at) WHERE status = 1;
CREATE INDEX approvals_by_run ON approvals (run_id);
-- What waits is counted from this index alone.
CREATE INDEX approvals_waiting ON approvals (agent_name, tools) INCLUDE (created_at) WHERE status = 1;

-- Addresses that users have events of their runs posted to, and the outbox: one row for each event
-- and webhook, written by the statement that appends the event to its run's log. What is posted is
-- made of the log when it is sent. Rows of the outbox do not refer to their webhook by a foreign key:
-- its deletion must never hold up, or refuse, an append to a log.
CREATE TABLE webhooks (
    webhook_id      uuid PRIMARY KEY,
    user_id         text NOT NULL,
    url             text NOT NULL,
    origin          text NOT NULL,
    events          smallint[] NOT NULL,
    key_id          text NOT NULL,
    secret          bytea NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    last_success_at timestamptz,
    last_failure_at timestamptz,
    disabled_at     timestamptz
) WITH (fillfactor = 70);
COMMENT ON COLUMN webhooks.origin IS 'scheme, host and port of the URL: attempts at once are bounded by it';
COMMENT ON COLUMN webhooks.events IS 'numbers of bos.gateway.v1.WebhookEvent';
COMMENT ON COLUMN webhooks.key_id IS 'which of BOS_GATEWAY_SECRETS_KEYS encrypted the secret';
COMMENT ON COLUMN webhooks.secret IS 'nonce and AES-256-GCM of a JSON object, bound to webhook_id';
COMMENT ON COLUMN webhooks.disabled_at IS 'when the receiver answered 410 Gone';
CREATE INDEX webhooks_by_user ON webhooks (user_id, created_at);

CREATE TABLE webhook_deliveries (
    delivery_id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    webhook_id  uuid NOT NULL,
    user_id     text NOT NULL,
    run_id      uuid REFERENCES runs ON DELETE CASCADE,
    approval_id uuid,
    event       smallint NOT NULL,
    position    bigint GENERATED ALWAYS AS IDENTITY,
    state       smallint NOT NULL DEFAULT 1,
    outcome     smallint NOT NULL DEFAULT 0,
    attempts    integer NOT NULL DEFAULT 0,
    failures    integer NOT NULL DEFAULT 0,
    due_at      timestamptz NOT NULL DEFAULT now(),
    begun_at    timestamptz,
    created_at  timestamptz NOT NULL DEFAULT now(),
    ended_at    timestamptz
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
COMMENT ON COLUMN webhook_deliveries.run_id IS 'null for a test';
COMMENT ON COLUMN webhook_deliveries.position IS 'order of the events of a run: the statements that write them hold its row';
COMMENT ON COLUMN webhook_deliveries.state IS 'number of bos.gateway.v1.WebhookDeliveryState; 1 is PENDING';
COMMENT ON COLUMN webhook_deliveries.attempts IS 'fencing: grows with every claim';
COMMENT ON COLUMN webhook_deliveries.failures IS 'attempts that failed; those that died with their gateway do not count';
COMMENT ON COLUMN webhook_deliveries.due_at IS 'of a pending one: the next attempt; while an attempt is made, when it counts as lost';
COMMENT ON COLUMN webhook_deliveries.begun_at IS 'when the first attempt was claimed';

CREATE INDEX webhook_deliveries_due ON webhook_deliveries (webhook_id, due_at) WHERE state = 1;
CREATE INDEX webhook_deliveries_next ON webhook_deliveries (due_at) WHERE state = 1;
CREATE INDEX webhook_deliveries_by_run ON webhook_deliveries (run_id, webhook_id, position);
CREATE INDEX webhook_deliveries_by_webhook
    ON webhook_deliveries (webhook_id, created_at DESC, delivery_id DESC);
CREATE INDEX webhook_deliveries_by_end ON webhook_deliveries (ended_at) WHERE ended_at IS NOT NULL;

-- Tokens of runs that have ended, by day and user, and of everybody ('') by day: adding up the runs
-- of a day would take longer with each of them, and give back what erased runs consumed.
CREATE TABLE token_days (
    day     date NOT NULL,
    user_id text NOT NULL,
    tokens  bigint NOT NULL,
    PRIMARY KEY (day, user_id)
) WITH (fillfactor = 50);
COMMENT ON COLUMN token_days.user_id IS 'empty for everybody together';

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

-- What users ask for is read by a role that sees the rows of one user; which one, its statement says
-- by the setting bos.user_id. The gateway's own role owns the tables and is not restricted.
DO $$
DECLARE
    -- Since PostgreSQL 16 being a member and being allowed to act as the role are two things.
    needed text := CASE WHEN current_setting('server_version_num')::int >= 160000
                        THEN 'SET' ELSE 'MEMBER' END;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'bos_gateway_reader') THEN
        BEGIN
            CREATE ROLE bos_gateway_reader NOLOGIN;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;  -- by another database
        END;
    END IF;
    IF NOT pg_has_role(current_user, 'bos_gateway_reader', needed) THEN
        EXECUTE format('GRANT bos_gateway_reader TO %I', current_user);
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO bos_gateway_reader', current_schema());
EXCEPTION WHEN insufficient_privilege THEN
    RAISE EXCEPTION 'the role bos_gateway_reader is missing: let an administrator run CREATE ROLE bos_gateway_reader NOLOGIN; GRANT bos_gateway_reader TO %', current_user;
END
$$;
GRANT SELECT ON runs, run_events, answers, approvals, webhook_deliveries TO bos_gateway_reader;
-- Not the secret.
GRANT SELECT (webhook_id, user_id, url, events, created_at, last_success_at, last_failure_at,
              disabled_at) ON webhooks TO bos_gateway_reader;

-- Whose run it is, for the policies of tables that have no user of their own. A function that the
-- planner cannot look into is called for each row of the run that is asked for; a condition on the
-- table of runs in its place is planned as a search of all runs of the user, for every page.
-- Tables are looked for here alone: the caller's search path must not lead the owner's rights away.
SELECT set_config('search_path', format('%I, pg_temp', current_schema()), true);
CREATE FUNCTION owner_of(of_run uuid) RETURNS text
LANGUAGE plpgsql STABLE STRICT SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    RETURN (SELECT r.user_id FROM runs AS r WHERE r.run_id = of_run);
END
$$;
REVOKE ALL ON FUNCTION owner_of FROM PUBLIC;
GRANT EXECUTE ON FUNCTION owner_of TO bos_gateway_reader;

-- Whether a user is the one that the statement is for. The planner would work out the setting itself,
-- find it empty as yet, expect no rows of that user, and look for one run among all of theirs.
CREATE FUNCTION is_caller(of_user text) RETURNS boolean
LANGUAGE plpgsql STABLE STRICT AS $$
BEGIN
    RETURN of_user = nullif(current_setting('bos.user_id', true), '');
END
$$;

-- Whether the statement is for an approver other than the request's user: the setting
-- bos.member_of holds the roles and groups of that approver, separated by U+001F.
CREATE FUNCTION may_answer(approvers text[]) RETURNS boolean
LANGUAGE plpgsql STABLE STRICT AS $$
BEGIN
    RETURN approvers && string_to_array(
        nullif(current_setting('bos.member_of', true), ''), chr(31)
    );
END
$$;

ALTER TABLE runs ENABLE ROW LEVEL SECURITY;
ALTER TABLE run_events ENABLE ROW LEVEL SECURITY;
ALTER TABLE answers ENABLE ROW LEVEL SECURITY;
ALTER TABLE approvals ENABLE ROW LEVEL SECURITY;
ALTER TABLE webhooks ENABLE ROW LEVEL SECURITY;
ALTER TABLE webhook_deliveries ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_runs ON runs FOR SELECT TO bos_gateway_reader
    USING (is_caller(user_id));
CREATE POLICY own_events ON run_events FOR SELECT TO bos_gateway_reader
    USING (is_caller(owner_of(run_id)));
CREATE POLICY own_answers ON answers FOR SELECT TO bos_gateway_reader
    USING (is_caller(owner_of(run_id)));
CREATE POLICY own_approvals ON approvals FOR SELECT TO bos_gateway_reader
    USING (is_caller(user_id) OR (shared AND may_answer(approvers)));
CREATE POLICY own_webhooks ON webhooks FOR SELECT TO bos_gateway_reader
    USING (is_caller(user_id));
CREATE POLICY own_deliveries ON webhook_deliveries FOR SELECT TO bos_gateway_reader
    USING (is_caller(user_id));
-- Without a policy: for the table's owner alone, also if it is granted one day.
ALTER TABLE run_inputs ENABLE ROW LEVEL SECURITY;
ALTER TABLE run_secrets ENABLE ROW LEVEL SECURITY;
ALTER TABLE token_days ENABLE ROW LEVEL SECURITY;
ALTER TABLE cards ENABLE ROW LEVEL SECURITY;

-- migrate:down
DROP TABLE answers, approvals, webhook_deliveries, webhooks, run_secrets, run_inputs, run_events, runs, replicas,
    token_days, cards;
DROP FUNCTION unfinished_runs, owner_of, is_caller, may_answer;
