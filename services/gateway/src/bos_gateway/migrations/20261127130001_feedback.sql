-- migrate:up

-- What users think of answers: beside the log, as it is changed and taken back, and no run depends
-- on it.
CREATE TABLE run_feedback (
    run_id     uuid PRIMARY KEY REFERENCES runs ON DELETE CASCADE,
    user_id    text NOT NULL,
    rating     smallint NOT NULL,
    reasons    smallint[] NOT NULL,
    note       text NOT NULL CHECK (length(note) <= 2000),
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON COLUMN run_feedback.rating IS 'number of bos.gateway.v1.FeedbackRating';
COMMENT ON COLUMN run_feedback.reasons IS 'numbers of bos.gateway.v1.FeedbackReason';

GRANT SELECT ON run_feedback TO bos_gateway_reader;
ALTER TABLE run_feedback ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_feedback ON run_feedback FOR SELECT TO bos_gateway_reader
    USING (is_caller(user_id));

-- migrate:down
DROP TABLE run_feedback;
