-- migrate:up

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
GRANT SELECT ON runs, run_events TO bos_gateway_reader;
ALTER TABLE runs ENABLE ROW LEVEL SECURITY;
ALTER TABLE run_events ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_runs ON runs FOR SELECT TO bos_gateway_reader
    USING (user_id = nullif(current_setting('bos.user_id', true), ''));
CREATE POLICY own_events ON run_events FOR SELECT TO bos_gateway_reader
    USING (EXISTS (SELECT FROM runs AS r WHERE r.run_id = run_events.run_id));
-- Without a policy: for the owner alone, whatever is granted one day.
ALTER TABLE run_inputs ENABLE ROW LEVEL SECURITY;
ALTER TABLE run_secrets ENABLE ROW LEVEL SECURITY;

-- migrate:down
ALTER TABLE run_secrets DISABLE ROW LEVEL SECURITY;
ALTER TABLE run_inputs DISABLE ROW LEVEL SECURITY;
DROP POLICY own_events ON run_events;
DROP POLICY own_runs ON runs;
ALTER TABLE run_events DISABLE ROW LEVEL SECURITY;
ALTER TABLE runs DISABLE ROW LEVEL SECURITY;
REVOKE ALL ON runs, run_events FROM bos_gateway_reader;
