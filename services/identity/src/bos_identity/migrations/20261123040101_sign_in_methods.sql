-- allow changes-stored-rows: no release holds this table
-- migrate:up

-- What a session was opened with: an OpenID provider, or the password.
ALTER TABLE sessions ADD COLUMN openid_issuer text NOT NULL DEFAULT '';
COMMENT ON COLUMN sessions.openid_issuer IS 'empty: opened with the password';
-- Who has no password can have signed in by the provider alone.
UPDATE sessions SET openid_issuer = linked.issuer
FROM external_identities AS linked JOIN users USING (user_id)
WHERE sessions.user_id = linked.user_id AND users.password IS NULL;

-- Their owner may see them.
GRANT SELECT (issuer, subject, user_id, created_at) ON external_identities TO bos_identity_reader;
CREATE POLICY own_identities ON external_identities FOR SELECT TO bos_identity_reader
    USING (user_id = nullif(current_setting('bos.user_id', true), '')::uuid);

-- migrate:down
DROP POLICY own_identities ON external_identities;
REVOKE SELECT (issuer, subject, user_id, created_at)
    ON external_identities FROM bos_identity_reader;
ALTER TABLE sessions DROP COLUMN openid_issuer;
