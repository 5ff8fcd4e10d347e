"""Migrations that block writers, break a release, or change what was released are refused."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import migrations

FIRST, SECOND = "services/shop/migrations/1_items.sql", "services/shop/migrations/2_more.sql"
ITEMS = "-- migrate:up\nCREATE TABLE items (id bigint PRIMARY KEY);\n"


def rules(sql: str) -> set[str]:
    """Rules that refuse the one migration."""
    found = migrations.problems({FIRST: sql}, {})
    return {problem.split(": ")[1] for problem in found}


@pytest.mark.parametrize(
    ("statements", "rule"),
    [
        ("CREATE TABLE a (b int);\nCREATE INDEX c ON a (b);", None),
        ("CREATE INDEX c ON a (b);", "require-concurrent-index-creation"),
        ("CREATE INDEX CONCURRENTLY c ON a (b);", "concurrently-in-transaction"),
        ("DROP INDEX c;", "require-concurrent-index-deletion"),
        ("-- CREATE INDEX c ON a (b);", None),
        ("ALTER TABLE a ADD COLUMN b int;", None),
        ("ALTER TABLE a ADD COLUMN b int NOT NULL DEFAULT 0;", None),
        ("ALTER TABLE a ADD COLUMN b uuid DEFAULT gen_random_uuid();", "adding-field-with-default"),
        ("ALTER TABLE a ADD COLUMN b int NOT NULL;", "adding-required-field"),
        ("ALTER TABLE a DROP COLUMN b;", "ban-drop-column"),
        ("DROP TABLE a;", "ban-drop-table"),
        ("ALTER TABLE a ADD CONSTRAINT c CHECK (b > 0);", "constraint-missing-not-valid"),
        ("ALTER TABLE a ADD CONSTRAINT c CHECK (b > 0) NOT VALID;", None),
        ("ALTER TABLE a SET UNLOGGED;", "rewrites-table"),
        ("UPDATE a SET b = 1;", "changes-stored-rows"),
        ("DELETE FROM a WHERE b = 1;", "changes-stored-rows"),
        ("CREATE TABLE a (b int);\nINSERT INTO a VALUES (1);\nUPDATE a SET b = 2;", None),
        ("COMMENT ON TABLE a IS 'x; UPDATE a SET b = 1';", None),
        ("CREATE TABL a (b int);", "syntax-error"),
    ],
)
def test_statement_that_blocks_or_breaks_is_refused(statements: str, rule: str | None) -> None:
    found = rules(f"-- migrate:up\n{statements}\n\n-- migrate:down\nDROP TABLE a;\n")
    assert (rule in found) if rule else (found == set())


@pytest.mark.parametrize(
    ("statements", "fine"),
    [
        ("CREATE UNIQUE INDEX CONCURRENTLY c ON a (b);", True),
        ("DROP INDEX CONCURRENTLY IF EXISTS c;\nCREATE INDEX CONCURRENTLY c ON a (b);", True),
        ("ALTER TABLE a ADD b int;\nCREATE INDEX CONCURRENTLY c ON a (b);", False),
        (
            "DROP INDEX CONCURRENTLY IF EXISTS c;\nCREATE INDEX CONCURRENTLY c ON a (b);\n"
            "CREATE INDEX CONCURRENTLY d ON a (b);",
            False,
        ),
    ],
)
def test_outside_a_transaction_stands_one_index_alone(statements: str, fine: bool) -> None:
    found = rules(f"-- migrate:up transaction:false\n{statements}\n-- migrate:down\n")
    assert found == (set() if fine else {"not-alone-outside-transaction"})


def test_blocking_statement_may_stand_where_its_file_says_why_and_only_there() -> None:
    sql = "-- migrate:up\nUPDATE a SET b = 1;\n"
    allowed = f"-- allow changes-stored-rows: ten rows at most\n{sql}"
    assert rules(allowed) == set()
    assert rules(f"-- allow rewrites-table: it is small\n{sql}") >= {"changes-stored-rows"}
    (problem,) = migrations.problems({FIRST: f"-- allow ban-drop-table: why\n{ITEMS}"}, {})
    assert problem.endswith("nothing here needs it")


def test_what_a_release_uses_is_dropped_only_behind_a_release_that_can_do_without() -> None:
    released = {"1.0.0": {FIRST: migrations._digest(ITEMS)}}
    drop = "-- migrate:up\nDROP TABLE items;\n"
    for marker, fine in (
        ("", False),
        ("-- contract since 1.0.0: nothing reads it\n", True),
        ("-- contract since 1.1.0: nothing reads it\n", False),
        ("-- contract since 1.0.0:\n", False),
    ):
        found = migrations.problems({FIRST: ITEMS, SECOND: marker + drop}, released)
        assert (found == []) is fine, marker


def test_a_contraction_does_not_count_on_its_own_release() -> None:
    drop = "-- contract since 1.0.0: nothing reads it\n-- migrate:up\nDROP TABLE items;\n"
    texts = {FIRST: ITEMS, SECOND: drop}
    both = {"1.0.0": {name: migrations._digest(sql) for name, sql in texts.items()}}
    assert len(migrations.problems(texts, both)) == 2
    before = {"1.0.0": {FIRST: both["1.0.0"][FIRST]}, "1.1.0": {SECOND: both["1.0.0"][SECOND]}}
    assert migrations.problems(texts, before) == []


def test_released_migration_neither_changes_nor_goes_and_new_ones_come_behind_it() -> None:
    released = {"1.0.0": {SECOND: migrations._digest(ITEMS)}}
    assert migrations.problems({SECOND: ITEMS}, released) == []
    changed = migrations.problems({SECOND: f"{ITEMS}-- more\n"}, released)
    assert changed == [f"{SECOND}: released, and changed since; write another migration"]
    assert migrations.problems({}, released) == [f"{SECOND}: released, and not there any more"]
    other = "-- migrate:up\nCREATE TABLE other (id bigint PRIMARY KEY);\n"
    (behind,) = migrations.problems({SECOND: ITEMS, FIRST: other}, released)
    assert behind.startswith(f"{FIRST}: sorts before")


def test_release_records_each_file_once(tmp_path: Path) -> None:
    record = tmp_path / "released.toml"
    record.write_text("# Nothing yet.\n")
    for release, texts in (("1.0.0", {FIRST: ITEMS}), ("1.1.0", {FIRST: ITEMS, SECOND: "-- x"})):
        added = migrations.recorded(release, texts, migrations.read_releases(record))
        record.write_text(record.read_text() + added)
    assert {name: [*files] for name, files in migrations.read_releases(record).items()} == {
        "1.0.0": [FIRST],
        "1.1.0": [SECOND],
    }
    with pytest.raises(ValueError, match="is released"):
        migrations.recorded("1.1.0", {}, migrations.read_releases(record))


def test_every_service_that_has_tables_is_looked_at() -> None:
    found = {path.relative_to(migrations.ROOT).parts for path in migrations.migrations()}
    assert {parts[parts.index("src") - 1] for parts in found} >= {
        *("gateway", "identity", "memory", "documents", "files", "postgres")
    }


def test_migrations_of_this_state_pass_and_the_record_can_be_read() -> None:
    assert migrations.main([]) == 0
