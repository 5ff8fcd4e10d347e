"""Gateways and PostgreSQL that are ended, and clients that come back."""
