-- migrate:up

-- Questions with queries that a person has found right. Copies of what runs hold: they outlive the
-- run that they were made from, and go with the account of their author.
CREATE TABLE verified_queries (
    query_id       uuid PRIMARY KEY,
    user_id        text NOT NULL,
    group_name     text NOT NULL DEFAULT '',
    run_id         uuid NOT NULL,
    step_id        text NOT NULL,
    question       text NOT NULL CHECK (length(question) <= 2000),
    database       text NOT NULL,
    dialect        text NOT NULL,
    default_schema text NOT NULL,
    sql            text NOT NULL CHECK (length(sql) <= 6000),
    tables         text[] NOT NULL,
    words          text[] NOT NULL CHECK (cardinality(words) <= 64),
    corrected      boolean NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT now(),
    UNIQUE (user_id, run_id, step_id, group_name)
);
COMMENT ON COLUMN verified_queries.user_id IS 'author: the user who verified it';
COMMENT ON COLUMN verified_queries.group_name IS 'whose members read it as well; empty: the author alone';
COMMENT ON COLUMN verified_queries.words IS 'of the question, for finding similar ones';
COMMENT ON COLUMN verified_queries.corrected IS 'sql is a reviewer''s and not what ran';
CREATE INDEX verified_queries_by_user ON verified_queries (user_id, created_at DESC, query_id DESC);
CREATE INDEX verified_queries_by_group
    ON verified_queries (group_name, created_at DESC, query_id DESC) WHERE group_name <> '';
CREATE INDEX verified_queries_by_run ON verified_queries (run_id);

GRANT SELECT ON verified_queries TO bos_gateway_reader;
ALTER TABLE verified_queries ENABLE ROW LEVEL SECURITY;
-- Members of the group by the setting bos.member_of, as of those who may answer requests.
CREATE POLICY readable_queries ON verified_queries FOR SELECT TO bos_gateway_reader
    USING (is_caller(user_id)
           OR (group_name <> '' AND may_answer(ARRAY['group:' || group_name])));

-- migrate:down
DROP TABLE verified_queries;
