-- migrate:up

CREATE TABLE users (
    user_id             uuid PRIMARY KEY,
    username            text NOT NULL,
    email               text NOT NULL,
    display_name        text NOT NULL,
    password            text,
    created_at          timestamptz NOT NULL DEFAULT now(),
    password_changed_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON COLUMN users.password IS 'argon2id hash with its salt and cost; null: no login by password';
CREATE UNIQUE INDEX users_by_username ON users (lower(username));
CREATE UNIQUE INDEX users_by_email ON users (lower(email));

-- What a login opens. Its refresh tokens are its life; access tokens name it as "sid".
CREATE TABLE sessions (
    session_id     uuid PRIMARY KEY,
    user_id        uuid NOT NULL REFERENCES users ON DELETE CASCADE,
    started_at     timestamptz NOT NULL DEFAULT now(),
    last_used_at   timestamptz NOT NULL DEFAULT now(),
    expires_at     timestamptz NOT NULL,
    is_active      boolean NOT NULL DEFAULT true,
    ended_at       timestamptz,
    end_reason     text NOT NULL DEFAULT '',
    client_address text NOT NULL DEFAULT '',
    client_name    text NOT NULL DEFAULT ''
);
COMMENT ON COLUMN sessions.end_reason IS 'logged_out, revoked, password_changed or token_reused';
CREATE INDEX sessions_by_user ON sessions (user_id, last_used_at DESC);
CREATE INDEX sessions_by_expiry ON sessions (expires_at);

-- Every refresh token works once. Used ones are kept for a while: a second use ends the session.
CREATE TABLE refresh_tokens (
    token_digest bytea PRIMARY KEY,
    session_id   uuid NOT NULL REFERENCES sessions ON DELETE CASCADE,
    created_at   timestamptz NOT NULL DEFAULT now(),
    used_at      timestamptz
);
COMMENT ON COLUMN refresh_tokens.token_digest IS 'SHA-256 of the token, which is 32 random bytes';
CREATE INDEX refresh_tokens_by_session ON refresh_tokens (session_id);
CREATE INDEX refresh_tokens_used ON refresh_tokens (used_at) WHERE used_at IS NOT NULL;

-- Attempts to sign in, by account and by client address.
CREATE TABLE login_throttle (
    subject       bytea PRIMARY KEY,
    failures      integer NOT NULL,
    blocked_until timestamptz NOT NULL,
    updated_at    timestamptz NOT NULL
);
COMMENT ON COLUMN login_throttle.subject IS
    'SHA-256 of kind and subject: people type passwords where names belong';
CREATE INDEX login_throttle_by_age ON login_throttle (updated_at);

-- Keys that sign access tokens. The newest one that is active signs.
CREATE TABLE signing_keys (
    key_id      text PRIMARY KEY,
    public_key  bytea NOT NULL,
    sealed_key  bytea NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    active_from timestamptz NOT NULL
);
COMMENT ON COLUMN signing_keys.sealed_key IS 'Ed25519 private key, encrypted outside of the database';

-- What users ask about themselves is read by a role that sees only the rows of one user.
DO $$
DECLARE
    -- Since PostgreSQL 16 being a member and being allowed to act as the role are two things.
    needed text := CASE WHEN current_setting('server_version_num')::int >= 160000
                        THEN 'SET' ELSE 'MEMBER' END;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'bos_identity_reader') THEN
        BEGIN
            CREATE ROLE bos_identity_reader NOLOGIN;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;  -- by another database
        END;
    END IF;
    IF NOT pg_has_role(current_user, 'bos_identity_reader', needed) THEN
        EXECUTE format('GRANT bos_identity_reader TO %I', current_user);
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO bos_identity_reader', current_schema());
EXCEPTION WHEN insufficient_privilege THEN
    RAISE EXCEPTION 'the role bos_identity_reader is missing: let an administrator run CREATE ROLE bos_identity_reader NOLOGIN; GRANT bos_identity_reader TO %', current_user;
END
$$;
GRANT SELECT (user_id, username, email, display_name, created_at) ON users TO bos_identity_reader;
GRANT SELECT, UPDATE (is_active, ended_at, end_reason) ON sessions TO bos_identity_reader;
ALTER TABLE users ENABLE ROW LEVEL SECURITY;
ALTER TABLE sessions ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_user ON users FOR SELECT TO bos_identity_reader
    USING (user_id = nullif(current_setting('bos.user_id', true), '')::uuid);
CREATE POLICY own_sessions ON sessions TO bos_identity_reader
    USING (user_id = nullif(current_setting('bos.user_id', true), '')::uuid);

-- migrate:down
DROP TABLE signing_keys, login_throttle, refresh_tokens, sessions, users;
