-- migrate:up

-- One row per gateway process. A replica whose lease has run out is dead or cut off.
CREATE TABLE replicas (
    replica_id  uuid PRIMARY KEY,
    lease_until timestamptz NOT NULL,
    started_at  timestamptz NOT NULL DEFAULT now()
);

-- What must be found without reading a log: ownership, idempotency and lists.
CREATE TABLE runs (
    run_id          uuid PRIMARY KEY,
    user_id         text NOT NULL,
    request_id      text NOT NULL,
    request_digest  bytea NOT NULL,
    conversation_id text NOT NULL DEFAULT '',
    question        text NOT NULL,
    status          smallint NOT NULL,
    replica_id      uuid,
    epoch           bigint NOT NULL DEFAULT 1,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    finished_at     timestamptz,
    UNIQUE (user_id, request_id)
);
COMMENT ON COLUMN runs.status IS 'number of bos.gateway.v1.RunStatus';
COMMENT ON COLUMN runs.replica_id IS 'owner; null when released or waiting for a person';
COMMENT ON COLUMN runs.epoch IS 'fencing: grows with every change of owner';

CREATE INDEX runs_by_user ON runs (user_id, created_at DESC, run_id DESC);
CREATE INDEX runs_by_conversation ON runs (user_id, conversation_id, created_at DESC)
    WHERE conversation_id <> '';
CREATE INDEX runs_unfinished ON runs (created_at) WHERE finished_at IS NULL;

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
    PRIMARY KEY (run_id, sequence)
);
COMMENT ON COLUMN run_events.payload IS 'bos.runlog.v1.LogEvent';
-- Payloads are read whole and seldom; compressing them costs CPU on the hot path.
ALTER TABLE run_events ALTER COLUMN payload SET STORAGE EXTERNAL;

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

-- migrate:down
DROP TABLE run_inputs, run_events, runs, replicas;
