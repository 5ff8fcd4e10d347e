-- migrate:up

-- What services write, in the transaction of what was done; sealed into the trail within seconds.
CREATE TABLE audit_pending (
    entry_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    occurred_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor       text NOT NULL,
    actor_kind  text NOT NULL,
    action      text NOT NULL,
    target      text NOT NULL,
    outcome     text NOT NULL,
    address     text NOT NULL,
    details     jsonb NOT NULL
);

-- Who did what, in order. Every hash covers its row and the hash before it.
CREATE TABLE audit_trail (
    position    bigint PRIMARY KEY,
    occurred_at timestamptz NOT NULL,
    actor       text NOT NULL,
    actor_kind  text NOT NULL,
    action      text NOT NULL,
    target      text NOT NULL,
    outcome     text NOT NULL,
    address     text NOT NULL,
    details     jsonb NOT NULL,
    hash        bytea NOT NULL
);
COMMENT ON COLUMN audit_trail.hash IS 'SHA-256 of the hash before and of the row in canonical form';
CREATE INDEX audit_trail_by_actor ON audit_trail (actor, position);

-- Where the trail begins: the last row that retention has dropped, or nothing.
CREATE TABLE audit_checkpoint (
    is_only    boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    position   bigint NOT NULL,
    hash       bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
INSERT INTO audit_checkpoint (position, hash) VALUES (0, '\x');

-- Rows never change, and go only as a whole prefix that the checkpoint stands for.
CREATE FUNCTION audit_trail_is_append_only() RETURNS trigger LANGUAGE plpgsql
    SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        IF OLD.position <= (SELECT position FROM audit_checkpoint) THEN
            RETURN OLD;
        END IF;
    END IF;
    RAISE EXCEPTION 'the audit trail is append-only';
END
$$;
CREATE TRIGGER audit_trail_rows BEFORE UPDATE OR DELETE ON audit_trail
    FOR EACH ROW EXECUTE FUNCTION audit_trail_is_append_only();
CREATE TRIGGER audit_trail_whole BEFORE TRUNCATE ON audit_trail
    FOR EACH STATEMENT EXECUTE FUNCTION audit_trail_is_append_only();
ALTER TABLE audit_pending ENABLE ROW LEVEL SECURITY;
ALTER TABLE audit_trail ENABLE ROW LEVEL SECURITY;
ALTER TABLE audit_checkpoint ENABLE ROW LEVEL SECURITY;

-- migrate:down
DROP TABLE audit_pending, audit_trail, audit_checkpoint;
DROP FUNCTION audit_trail_is_append_only;
