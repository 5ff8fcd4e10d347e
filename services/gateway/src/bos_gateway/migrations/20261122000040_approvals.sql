-- migrate:up

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
    created_at   timestamptz NOT NULL,
    expire_at    timestamptz NOT NULL,
    responded_at timestamptz
);
COMMENT ON COLUMN approvals.status IS 'number of bos.gateway.v1.ApprovalStatus; 1 is PENDING';
COMMENT ON COLUMN approvals.payload IS 'bos.gateway.v1.Approval as it was requested';

CREATE INDEX approvals_by_user ON approvals (user_id, created_at DESC, approval_id DESC);
CREATE INDEX approvals_due ON approvals (expire_at) WHERE status = 1;
CREATE INDEX approvals_by_run ON approvals (run_id);

GRANT SELECT ON approvals TO bos_gateway_reader;
ALTER TABLE approvals ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_approvals ON approvals FOR SELECT TO bos_gateway_reader
    USING (user_id = nullif(current_setting('bos.user_id', true), ''));

-- migrate:down
DROP TABLE approvals;
