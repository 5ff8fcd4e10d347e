"""Migrations of tables that are in use must not stop those who write to them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(ROOT.glob("services/**/src/*/migrations/*.sql"))

_CREATED = re.compile(r"CREATE\s+(?:UNLOGGED\s+)?TABLE\s+(?:IF NOT EXISTS\s+)?(\w+)", re.I)
_INDEX = re.compile(
    r"CREATE\s+(?:UNIQUE\s+)?INDEX\s+(CONCURRENTLY\s+)?(?:IF NOT EXISTS\s+)?\w+\s+ON\s+(\w+)", re.I
)
_REWRITES = re.compile(
    r"\b(?:VACUUM\s+FULL|CLUSTER|SET\s+(?:UN)?LOGGED|ALTER\s+COLUMN\s+\w+\s+TYPE)\b", re.I
)


def problems(sql: str) -> list[str]:
    """What in a migration would stop writers of a table that was there before it."""
    up = re.sub(r"--(?! migrate).*", "", sql.partition("-- migrate:down")[0])
    made = {name.lower() for name in _CREATED.findall(up)}
    found = []
    for concurrently, table in _INDEX.findall(up):
        if table.lower() in made:
            continue
        if not concurrently:
            found.append(f"an index of {table} is not made CONCURRENTLY")
        elif "transaction:false" not in up or up.count(";") > 2:
            found.append(f"the index of {table} needs a file of its own with transaction:false")
    if found_rewrite := _REWRITES.search(up):
        found.append(f"{found_rewrite[0]} rewrites a table")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_migration_stops_no_writers(path: Path) -> None:
    assert problems(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("sql", "fine"),
    [
        ("-- migrate:up\nCREATE TABLE a (b int);\nCREATE INDEX c ON a (b);", True),
        ("-- migrate:up\nCREATE INDEX c ON a (b);", False),
        ("-- migrate:up\nCREATE INDEX CONCURRENTLY c ON a (b);", False),
        (
            "-- migrate:up transaction:false\nDROP INDEX CONCURRENTLY IF EXISTS c;\n"
            "CREATE UNIQUE INDEX CONCURRENTLY c ON a (b);\n-- migrate:down",
            True,
        ),
        (
            "-- migrate:up transaction:false\nALTER TABLE a ADD b int;\nSELECT 1;\n"
            "CREATE INDEX CONCURRENTLY c ON a (b);",
            False,
        ),
        ("-- migrate:up\nALTER TABLE a ADD COLUMN b int;", True),
        ("-- migrate:up\nALTER TABLE a ALTER COLUMN b TYPE bigint;", False),
        ("-- migrate:up\n-- CREATE INDEX c ON a (b);\n", True),
    ],
)
def test_rule_distinguishes_both(sql: str, fine: bool) -> None:
    assert (problems(sql) == []) is fine


def test_every_service_that_has_tables_is_looked_at() -> None:
    assert {path.parts[-5] for path in FILES} >= {"gateway", "identity", "memory", "documents"}
