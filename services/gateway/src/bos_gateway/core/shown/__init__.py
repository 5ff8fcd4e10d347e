"""Display of untrusted text: invisible characters escaped, credentials masked. Pure."""
