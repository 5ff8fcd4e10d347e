"""Fixtures of the rig, for every test of this folder."""

from __future__ import annotations

from mcp_db_rig import postgres_admin, reader_dsn, sqlite_file

__all__ = ["postgres_admin", "reader_dsn", "sqlite_file"]
