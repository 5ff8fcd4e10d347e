-- migrate:up

-- Users choose the ids of their conversations, so an id is unique per user only; the key is ours.
CREATE TABLE conversations (
    conversation_key uuid PRIMARY KEY,
    user_id          text NOT NULL,
    conversation_id  text NOT NULL,
    title            text NOT NULL,
    turns            integer NOT NULL DEFAULT 0,
    tainted          boolean NOT NULL,
    created_at       timestamptz NOT NULL,
    updated_at       timestamptz NOT NULL,
    UNIQUE (user_id, conversation_id)
);
COMMENT ON COLUMN conversations.tainted IS
    'a turn of it, and so perhaps its title, rests on content that others wrote';
CREATE INDEX conversations_by_use ON conversations (user_id, updated_at DESC, conversation_key DESC);

-- What was asked before the deletion must not bring a conversation back when its run ends.
CREATE TABLE deleted_conversations (
    user_id         text NOT NULL,
    conversation_id text NOT NULL,
    deleted_at      timestamptz NOT NULL,
    PRIMARY KEY (user_id, conversation_id)
);

CREATE TABLE messages (
    message_id       uuid PRIMARY KEY,
    conversation_key uuid NOT NULL REFERENCES conversations ON DELETE CASCADE,
    user_id          text NOT NULL,
    run_id           text NOT NULL,
    role             text NOT NULL CHECK (role IN ('user', 'assistant')),
    content          text NOT NULL,
    metadata         jsonb NOT NULL DEFAULT '{}',
    tainted          boolean NOT NULL,
    turn             integer NOT NULL,
    ordinal          integer NOT NULL,
    created_at       timestamptz NOT NULL,
    UNIQUE (run_id, role),
    UNIQUE (conversation_key, ordinal)
);
COMMENT ON COLUMN messages.tainted IS 'its turn rests on content that others wrote';
COMMENT ON COLUMN messages.turn IS 'turn of the conversation, from 1';
COMMENT ON COLUMN messages.ordinal IS 'place in the conversation; questions before their answers';

CREATE TABLE conversation_summaries (
    summary_id       uuid PRIMARY KEY,
    conversation_key uuid NOT NULL REFERENCES conversations ON DELETE CASCADE,
    user_id          text NOT NULL,
    summary_text     text NOT NULL,
    turns_covered    integer NOT NULL,
    tainted          boolean NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT now(),
    UNIQUE (conversation_key, turns_covered)
);
COMMENT ON COLUMN conversation_summaries.turns_covered IS 'turns in it, from the first';
COMMENT ON COLUMN conversation_summaries.tainted IS 'one of these turns is';

-- A row stays when everything in it is forgotten: it says when that was.
CREATE TABLE user_long_term_memory (
    user_id        text PRIMARY KEY,
    critical_facts jsonb NOT NULL DEFAULT '{}',
    preferences    jsonb NOT NULL DEFAULT '{}',
    tainted        boolean NOT NULL DEFAULT false,
    version        bigint NOT NULL DEFAULT 1,
    corrected_at   timestamptz,
    updated_at     timestamptz NOT NULL DEFAULT now()
);
COMMENT ON COLUMN user_long_term_memory.tainted IS
    'some of it was found in a run that rests on content that others wrote, and no user confirmed it';
COMMENT ON COLUMN user_long_term_memory.corrected_at IS
    'when the user last changed it or had it deleted; questions asked before that add nothing';

-- What users ask for and change themselves is done by a role that sees only the rows of one user.
DO $$
DECLARE
    -- Since PostgreSQL 16 being a member and being allowed to act as the role are two things.
    needed text := CASE WHEN current_setting('server_version_num')::int >= 160000
                        THEN 'SET' ELSE 'MEMBER' END;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'bos_memory_reader') THEN
        BEGIN
            CREATE ROLE bos_memory_reader NOLOGIN;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;  -- by another database
        END;
    END IF;
    IF NOT pg_has_role(current_user, 'bos_memory_reader', needed) THEN
        EXECUTE format('GRANT bos_memory_reader TO %I', current_user);
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO bos_memory_reader', current_schema());
EXCEPTION WHEN insufficient_privilege THEN
    RAISE EXCEPTION 'the role bos_memory_reader is missing: let an administrator run CREATE ROLE bos_memory_reader NOLOGIN; GRANT bos_memory_reader TO %', current_user;
END
$$;
GRANT SELECT, UPDATE (title), DELETE ON conversations TO bos_memory_reader;
GRANT SELECT, INSERT, UPDATE, DELETE ON deleted_conversations TO bos_memory_reader;
GRANT SELECT ON messages, conversation_summaries TO bos_memory_reader;
GRANT SELECT, INSERT, UPDATE ON user_long_term_memory TO bos_memory_reader;
ALTER TABLE conversations ENABLE ROW LEVEL SECURITY;
ALTER TABLE deleted_conversations ENABLE ROW LEVEL SECURITY;
ALTER TABLE messages ENABLE ROW LEVEL SECURITY;
ALTER TABLE conversation_summaries ENABLE ROW LEVEL SECURITY;
ALTER TABLE user_long_term_memory ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_conversations ON conversations TO bos_memory_reader
    USING (user_id = nullif(current_setting('bos.user_id', true), ''));
CREATE POLICY own_deleted_conversations ON deleted_conversations TO bos_memory_reader
    USING (user_id = nullif(current_setting('bos.user_id', true), ''));
CREATE POLICY own_messages ON messages FOR SELECT TO bos_memory_reader
    USING (user_id = nullif(current_setting('bos.user_id', true), ''));
CREATE POLICY own_summaries ON conversation_summaries FOR SELECT TO bos_memory_reader
    USING (user_id = nullif(current_setting('bos.user_id', true), ''));
CREATE POLICY own_long_term_memory ON user_long_term_memory TO bos_memory_reader
    USING (user_id = nullif(current_setting('bos.user_id', true), ''));

-- migrate:down
DROP TABLE user_long_term_memory, conversation_summaries, messages, deleted_conversations,
    conversations;
