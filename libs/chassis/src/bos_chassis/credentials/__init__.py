"""Credentials in files: TLS certificates and keys, replaced while a service runs."""
