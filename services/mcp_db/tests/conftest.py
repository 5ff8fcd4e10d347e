"""Fixtures of the rig, for every test of this folder."""

from __future__ import annotations

from mariadb_server import mariadb, mariadb_shop
from mcp_db_rig import database, postgres_admin, reader_dsn, sql_server_url, sqlite_file

__all__ = [
    "database",
    "mariadb",
    "mariadb_shop",
    "postgres_admin",
    "reader_dsn",
    "sql_server_url",
    "sqlite_file",
]
