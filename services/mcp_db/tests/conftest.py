"""Fixtures of the rig, for every test of this folder."""

from connect_rig import bos_connect
from mariadb_server import mariadb, mariadb_shop
from mcp_db_rig import database, postgres_admin, reader_dsn, sqlite_file

from bos_testkit.scripted_model.pytest_fixtures import scripted_model

__all__ = [
    "bos_connect",
    "database",
    "mariadb",
    "mariadb_shop",
    "postgres_admin",
    "reader_dsn",
    "scripted_model",
    "sqlite_file",
]
