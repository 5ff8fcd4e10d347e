"""Signing keys of access tokens: stored, rotated."""
