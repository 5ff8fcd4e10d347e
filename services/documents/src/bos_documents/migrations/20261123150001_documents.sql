-- migrate:up

-- A row is there before its file is stored, and until its file and its vectors are deleted.
CREATE TABLE documents (
    document_id        uuid PRIMARY KEY,
    user_id            text NOT NULL,
    digest             bytea NOT NULL CHECK (octet_length(digest) = 32),
    size_bytes         bigint NOT NULL CHECK (size_bytes >= 0),
    name               text NOT NULL,
    given_type         text NOT NULL DEFAULT '',
    given_date         integer NOT NULL DEFAULT 0,
    state              text NOT NULL CHECK (state IN (
                           'storing', 'queued', 'parsing', 'indexing', 'ready', 'failed',
                           'deleting')),
    failure_reason     text NOT NULL DEFAULT '',
    failure_message    text NOT NULL DEFAULT '',
    media_type         text NOT NULL DEFAULT '',
    description        text NOT NULL DEFAULT '',
    document_type      text NOT NULL DEFAULT '',
    topics             text[] NOT NULL DEFAULT '{}',
    document_date      integer NOT NULL DEFAULT 0,
    page_count         integer NOT NULL DEFAULT 0,
    pages_parsed       integer NOT NULL DEFAULT 0,
    pages_without_text integer[] NOT NULL DEFAULT '{}',
    notes              text[] NOT NULL DEFAULT '{}',
    chunks_total       integer NOT NULL DEFAULT 0,
    chunks_indexed     integer NOT NULL DEFAULT 0,
    attempts           integer NOT NULL DEFAULT 0,
    generation         integer NOT NULL DEFAULT 0,
    serving            integer NOT NULL DEFAULT 0,
    serving_chunks     integer NOT NULL DEFAULT 0,
    model              text NOT NULL DEFAULT '',
    checked_at         timestamptz NOT NULL DEFAULT now(),
    version            bigint NOT NULL DEFAULT 1,
    created_at         timestamptz NOT NULL DEFAULT now(),
    touched_at         timestamptz NOT NULL DEFAULT now(),
    state_changed_at   timestamptz NOT NULL DEFAULT now()
);
COMMENT ON COLUMN documents.given_type IS 'kind of document that its owner named; empty: found';
COMMENT ON COLUMN documents.given_date IS 'as YYYYMMDD; 0: found in the content';
COMMENT ON COLUMN documents.generation IS 'the last reading that was begun; chunks belong to one';
COMMENT ON COLUMN documents.serving IS 'the reading whose chunks can be found; 0: none';
COMMENT ON COLUMN documents.model IS 'embedding model of the chunks that can be found';
COMMENT ON COLUMN documents.checked_at IS 'when its vectors were last counted';
COMMENT ON COLUMN documents.version IS 'grows with each change, for those who watch';
COMMENT ON COLUMN documents.touched_at IS 'when its upload last went on';
-- The same content is one document of its user, and never one of two users.
CREATE UNIQUE INDEX documents_by_content ON documents (user_id, digest) WHERE state <> 'deleting';
CREATE INDEX documents_by_age ON documents (user_id, created_at DESC, document_id DESC);
CREATE INDEX documents_unstored ON documents (touched_at) WHERE state = 'storing';
CREATE INDEX documents_by_check ON documents (checked_at) WHERE serving > 0;

CREATE FUNCTION document_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        PERFORM pg_notify('bos_documents', 'changed ' || OLD.document_id);
        RETURN OLD;
    END IF;
    NEW.version := OLD.version + 1;
    IF NEW.state <> OLD.state THEN
        NEW.state_changed_at := now();
    END IF;
    PERFORM pg_notify('bos_documents', 'changed ' || NEW.document_id);
    RETURN NEW;
END
$$;
CREATE TRIGGER document_changed BEFORE UPDATE OR DELETE ON documents
    FOR EACH ROW EXECUTE FUNCTION document_changed();

-- Extracted text of a reading under way; gone once its chunks can be found.
CREATE TABLE pages (
    document_id uuid NOT NULL REFERENCES documents ON DELETE CASCADE,
    generation  integer NOT NULL,
    number      integer NOT NULL,
    user_id     text NOT NULL,
    content     text NOT NULL,
    PRIMARY KEY (document_id, generation, number)
);

CREATE TABLE chunks (
    document_id     uuid NOT NULL REFERENCES documents ON DELETE CASCADE,
    generation      integer NOT NULL,
    ordinal         integer NOT NULL,
    chunk_id        uuid NOT NULL,
    user_id         text NOT NULL,
    content         text NOT NULL,
    kind            text NOT NULL CHECK (kind IN ('text', 'table')),
    tokens          integer NOT NULL,
    first_page      integer NOT NULL,
    last_page       integer NOT NULL,
    section_path    text[] NOT NULL,
    start_char      integer NOT NULL,
    end_char        integer NOT NULL,
    parent_chunk_id uuid,
    recognised      boolean NOT NULL,
    PRIMARY KEY (document_id, generation, ordinal),
    UNIQUE (chunk_id, generation)
);

-- One a document. The fence grows with each owner: what an earlier one writes is refused.
CREATE TABLE jobs (
    document_id uuid PRIMARY KEY REFERENCES documents ON DELETE CASCADE,
    user_id     text NOT NULL,
    generation  integer NOT NULL,
    stage       text NOT NULL CHECK (stage IN (
                    'parse', 'chunk', 'describe', 'copy', 'index', 'publish', 'clean', 'delete')),
    quiet       boolean NOT NULL DEFAULT false,
    model       text NOT NULL DEFAULT '',
    done        integer NOT NULL DEFAULT 0,
    found       jsonb NOT NULL DEFAULT '{}',
    attempts    integer NOT NULL DEFAULT 0,
    deaths      integer NOT NULL DEFAULT 0,
    waits       integer NOT NULL DEFAULT 0,
    not_before  timestamptz NOT NULL DEFAULT now(),
    fence       bigint NOT NULL DEFAULT 0,
    owner       uuid,
    lease_until timestamptz,
    created_at  timestamptz NOT NULL DEFAULT now()
);
COMMENT ON COLUMN jobs.quiet IS 'its owner is shown nothing of it: other model, repair';
COMMENT ON COLUMN jobs.done IS 'chunks in the index';
COMMENT ON COLUMN jobs.found IS 'description, type, topics, date and notes of this reading';
COMMENT ON COLUMN jobs.attempts IS 'failed ones that the document itself may have caused';
COMMENT ON COLUMN jobs.deaths IS 'owners that ended with it since it last got on';
COMMENT ON COLUMN jobs.waits IS 'failures of services in a row, which are not the document''s';
CREATE INDEX jobs_by_time ON jobs (not_before);
CREATE INDEX jobs_of_user ON jobs (user_id);

-- What users ask for is read by a role that sees nothing of others.
DO $$
DECLARE
    -- Since PostgreSQL 16 being a member and being allowed to act as the role are two things.
    needed text := CASE WHEN current_setting('server_version_num')::int >= 160000
                        THEN 'SET' ELSE 'MEMBER' END;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'bos_documents_reader') THEN
        BEGIN
            CREATE ROLE bos_documents_reader NOLOGIN;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;  -- by another database
        END;
    END IF;
    IF NOT pg_has_role(current_user, 'bos_documents_reader', needed) THEN
        EXECUTE format('GRANT bos_documents_reader TO %I', current_user);
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO bos_documents_reader', current_schema());
EXCEPTION WHEN insufficient_privilege THEN
    RAISE EXCEPTION 'the role bos_documents_reader is missing: let an administrator run CREATE ROLE bos_documents_reader NOLOGIN; GRANT bos_documents_reader TO %', current_user;
END
$$;
GRANT SELECT ON documents, chunks TO bos_documents_reader;
ALTER TABLE documents ENABLE ROW LEVEL SECURITY;
ALTER TABLE pages ENABLE ROW LEVEL SECURITY;
ALTER TABLE chunks ENABLE ROW LEVEL SECURITY;
ALTER TABLE jobs ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_documents ON documents FOR SELECT TO bos_documents_reader
    USING (user_id = nullif(current_setting('bos.user_id', true), ''));
CREATE POLICY own_chunks ON chunks FOR SELECT TO bos_documents_reader
    USING (user_id = nullif(current_setting('bos.user_id', true), ''));

-- migrate:down
DROP TABLE jobs, chunks, pages, documents;
DROP FUNCTION document_changed;
