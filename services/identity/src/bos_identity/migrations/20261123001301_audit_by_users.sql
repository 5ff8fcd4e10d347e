-- migrate:up
-- Changes by the role that sees only the rows of one user are audited by that role, too.
GRANT INSERT ON audit_pending TO bos_identity_reader;
CREATE POLICY own_deeds ON audit_pending FOR INSERT TO bos_identity_reader
    WITH CHECK (nullif(current_setting('bos.user_id', true), '') IN (actor, details->>'user'));

-- migrate:down
DROP POLICY own_deeds ON audit_pending;
REVOKE INSERT ON audit_pending FROM bos_identity_reader;
