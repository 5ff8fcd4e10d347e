-- migrate:up

CREATE TABLE files (
    file_id      uuid PRIMARY KEY,
    user_id      text NOT NULL,
    name         text NOT NULL CHECK (name <> ''),
    renamed_from text NOT NULL DEFAULT '',
    current      integer NOT NULL CHECK (current > 0),
    created_at   timestamptz NOT NULL DEFAULT now(),
    UNIQUE (user_id, name)
);
COMMENT ON COLUMN files.current IS 'number of the version that is the file''s content';

-- A row is there before its blob is stored, and until its blob is deleted.
CREATE TABLE versions (
    version_id uuid PRIMARY KEY,
    user_id    text NOT NULL,
    file_id    uuid REFERENCES files,
    number     integer,
    digest     bytea NOT NULL CHECK (octet_length(digest) = 32),
    size_bytes bigint NOT NULL CHECK (size_bytes >= 0),
    media_type text NOT NULL,
    state      text NOT NULL CHECK (state IN ('storing', 'stored', 'deleting')),
    origin     text NOT NULL CHECK (origin IN ('upload', 'step', 'download')),
    tainted    boolean NOT NULL,
    run_id     text NOT NULL DEFAULT '',
    step_key   text NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT now(),
    touched_at timestamptz NOT NULL DEFAULT now(),
    CHECK ((state = 'stored') = (file_id IS NOT NULL AND number IS NOT NULL)),
    UNIQUE (file_id, number)
);
COMMENT ON COLUMN versions.tainted IS 'rests on content that others wrote';
COMMENT ON COLUMN versions.step_key IS 'the step that wrote it, whose repetition replaces it';
CREATE INDEX versions_of_user ON versions (user_id);
CREATE INDEX versions_to_collect ON versions (touched_at) WHERE state <> 'stored';

-- What users ask for is read by a role that sees nothing of others.
DO $$
DECLARE
    -- Since PostgreSQL 16 being a member and being allowed to act as the role are two things.
    needed text := CASE WHEN current_setting('server_version_num')::int >= 160000
                        THEN 'SET' ELSE 'MEMBER' END;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'bos_files_reader') THEN
        BEGIN
            CREATE ROLE bos_files_reader NOLOGIN;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;  -- by another database
        END;
    END IF;
    IF NOT pg_has_role(current_user, 'bos_files_reader', needed) THEN
        EXECUTE format('GRANT bos_files_reader TO %I', current_user);
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO bos_files_reader', current_schema());
EXCEPTION WHEN insufficient_privilege THEN
    RAISE EXCEPTION 'the role bos_files_reader is missing: let an administrator run CREATE ROLE bos_files_reader NOLOGIN; GRANT bos_files_reader TO %', current_user;
END
$$;
GRANT SELECT ON files, versions TO bos_files_reader;
ALTER TABLE files ENABLE ROW LEVEL SECURITY;
ALTER TABLE versions ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_files ON files FOR SELECT TO bos_files_reader
    USING (user_id = nullif(current_setting('bos.user_id', true), ''));
CREATE POLICY own_versions ON versions FOR SELECT TO bos_files_reader
    USING (user_id = nullif(current_setting('bos.user_id', true), ''));

-- migrate:down
DROP TABLE versions, files;
