"""Authentication and authorisation: callers, tokens, API keys, roles, scopes."""
