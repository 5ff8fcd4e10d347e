-- migrate:up

-- Who at an OpenID provider is which user. Only the provider's own subject links an account.
CREATE TABLE external_identities (
    issuer       text NOT NULL,
    subject      text NOT NULL,
    user_id      uuid NOT NULL REFERENCES users ON DELETE CASCADE,
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (issuer, subject)
);
CREATE INDEX external_identities_by_user ON external_identities (user_id);
ALTER TABLE external_identities ENABLE ROW LEVEL SECURITY;

-- People who are at the provider's pages now.
CREATE TABLE openid_flows (
    handle_digest bytea PRIMARY KEY,
    kind          text NOT NULL CHECK (kind IN ('code', 'device')),
    sealed        bytea NOT NULL,
    network       text NOT NULL,
    expires_at    timestamptz NOT NULL,
    interval_s    double precision NOT NULL,
    next_poll_at  timestamptz NOT NULL DEFAULT now()
);
COMMENT ON COLUMN openid_flows.handle_digest IS 'SHA-256 of the handle, which is 32 random bytes';
COMMENT ON COLUMN openid_flows.sealed IS
    'State, nonce, PKCE verifier and redirect URI, or the device code; encrypted outside of the database';
CREATE INDEX openid_flows_by_expiry ON openid_flows (expires_at);
CREATE INDEX openid_flows_by_network ON openid_flows (network);
ALTER TABLE openid_flows ENABLE ROW LEVEL SECURITY;

-- migrate:down
DROP TABLE openid_flows, external_identities;
