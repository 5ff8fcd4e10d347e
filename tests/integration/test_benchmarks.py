"""Sets in the BIRD and Spider formats, scored on a real gateway with agents and databases.

The model is scripted, and its queries are other ones than the benchmark's: what is compared is what
the databases return.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import SecretStr

from bos_cli.evaluation.benchmarks import read_benchmark
from bos_cli.evaluation.running import ask_all
from bos_mcp_db.settings import DatabaseSettings

from .harness import open_harness, plan_reply, planned, query_replies

if TYPE_CHECKING:
    from pathlib import Path

    from bos_cli.evaluation.running import Graded
    from bos_testkit.scripted_model.replies import Fixture

pytestmark = pytest.mark.asyncio(loop_scope="module")

DATABASES = {
    "zoo": (
        "animals",
        "CREATE TABLE animals (animal_id integer PRIMARY KEY, sound text NOT NULL);"
        " INSERT INTO animals (sound) VALUES ('purr'), ('purr'), ('moo');",
    ),
    "bank": (
        "accounts",
        "CREATE TABLE accounts (owner text PRIMARY KEY, balance real NOT NULL);"
        " INSERT INTO accounts VALUES ('Asha', 0.1), ('Ravi', 7.25), ('Meera', 0.2);",
    ),
    "rail": (
        "trains",
        "CREATE TABLE trains (train_id integer PRIMARY KEY, line text NOT NULL);"
        " INSERT INTO trains (line) VALUES ('A'), ('B'), ('A');",
    ),
}
UNSERVED = "sea"
MOST_ROWS = 200
"""What mcp_db returns of a result, unless settings say otherwise."""
BIRD = [
    {"question_id": "cats", "db_id": "zoo", "question": "How many cats?", "evidence": "cats purr",
     "SQL": "SELECT COUNT(*) FROM animals WHERE sound = 'purr'", "difficulty": "simple"},
    {"question_id": "total", "db_id": "bank", "question": "What is the balance of all accounts?",
     "SQL": "SELECT SUM(balance) FROM accounts", "difficulty": "simple"},
    {"question_id": "ranking", "db_id": "bank", "question": "Who has how much, the richest first?",
     "SQL": "SELECT owner, balance FROM accounts ORDER BY balance DESC", "difficulty": "moderate"},
    {"question_id": "owners", "db_id": "bank", "question": "Which owners are there?",
     "SQL": "SELECT owner FROM accounts WHERE balance > 0.1", "difficulty": "moderate"},
    {"question_id": "fish", "db_id": UNSERVED, "question": "How many fish are there?",
     "SQL": "SELECT COUNT(*) FROM fish", "difficulty": "simple"},
]  # fmt: skip
SPIDER = [
    {"db_id": "rail", "question": "Which lines are there?",
     "query": "SELECT DISTINCT line FROM trains"}
]  # fmt: skip
WRITTEN = {
    "How many cats?\nHint: cats purr": (
        "animals",
        "SELECT SUM(CASE WHEN sound = 'purr' THEN 1 ELSE 0 END) AS cats FROM animals",
    ),
    # Sums of floats differ in the last place by the order of the rows.
    "What is the balance of all accounts?": (
        "accounts",
        "SELECT SUM(balance) AS total FROM (SELECT balance FROM accounts ORDER BY owner DESC) AS x",
    ),
    "Who has how much, the richest first?": (
        "accounts",
        "SELECT owner, balance FROM accounts ORDER BY balance",
    ),
    "Which owners are there?": ("accounts", "SELECT owner FROM accounts"),
    "How many fish are there?": ("fish", "SELECT COUNT(*) AS fish FROM fish"),
    "Which lines are there?": (
        "trains",
        "SELECT line FROM trains GROUP BY line ORDER BY line DESC",
    ),
}  # fmt: skip


def _replies() -> list[Fixture]:
    """The model plans one step for each question, and writes its own query."""
    found = []
    for question, (table, sql) in WRITTEN.items():
        task = question.partition("\n")[0]
        found.append(plan_reply(question, planned("find", "sql", task)))
        found += query_replies(task, sql, table)
    return found


def _written(folder: Path, databases: str, entries: Any) -> Path:
    """A benchmark as it is published: the entries, and a folder of databases beside them."""
    scripts = {name: script for name, (_, script) in DATABASES.items()}
    scripts[UNSERVED] = "CREATE TABLE fish (fish_id integer PRIMARY KEY);"
    for name, script in scripts.items():
        place = folder / databases / name
        place.mkdir(parents=True)
        with closing(sqlite3.connect(place / f"{name}.sqlite")) as connection:
            connection.executescript(script)
    path = folder / "dev.json"
    path.write_text(json.dumps(entries), encoding="utf-8")
    return path


def _broken(result: Graded) -> list[str]:
    return [check.name for check in result.checks if not check.passed]


async def test_bird_and_spider_sets_are_scored_by_real_databases(
    tmp_path: Path, store_url: str, clean_environment: None
) -> None:
    bird = read_benchmark(_written(tmp_path / "bird", "dev_databases", BIRD))
    spider = read_benchmark(_written(tmp_path / "spider", "database", SPIDER))
    served = {
        name: DatabaseSettings(
            url=SecretStr(f"sqlite:///{tmp_path}/bird/dev_databases/{name}/{name}.sqlite"),
            allowed_tables=(table,),
        )
        for name, (table, _) in DATABASES.items()
    }
    replies = _replies()
    async with open_harness(served["zoo"], store_url, databases=served, replies=replies) as harness:
        results = [
            each
            for questions in (bird, spider)
            for each in await ask_all(
                harness.client, questions, at_once=2, timeout_s=60, done=lambda _: None
            )
        ]
        queries = harness.queries()

    # Wrong in its order, wrong in its rows, of a database that is not served; all others are right.
    assert {each.question.id: _broken(each) for each in results} == {
        "cats": [],
        "total": [],
        "ranking": ["rows"],
        "owners": ["rows"],
        "fish": ["status", "rows"],
        "0": [],
    }
    answered = [each for each in results if each.question.id != "fish"]
    # The guard bounds each query that the model wrote.
    assert [each.outcome.sql for each in answered] == [
        (f"{sql} LIMIT {MOST_ROWS + 1}",)
        for question, (_, sql) in WRITTEN.items()
        if "fish" not in question
    ]
    # The plan, the query, what it found.
    assert all(each.outcome.calls >= 3 for each in answered)
    assert queries >= len(answered)
