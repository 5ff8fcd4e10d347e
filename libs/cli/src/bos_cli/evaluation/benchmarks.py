"""Readers of the BIRD and Spider formats: questions with the query that gives the right rows.

A ``.json`` file lists ``question``, ``db_id`` and ``SQL`` (BIRD) or ``query`` (Spider). Databases
are SQLite files ``FOLDER/<db_id>/<db_id>.sqlite`` beside it, in ``dev_databases``,
``train_databases`` or ``database``. The expected rows are what the query returns there. The Bos
that is asked must know each database by its ``db_id``.
"""

from __future__ import annotations

import json
import re
import sqlite3
import time
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

from bos_cli.evaluation.questions import QuestionSet, parse_set
from bos_errors import InvalidArgument

_FOLDERS = ("dev_databases", "train_databases", "database", "databases")
_MAX_BYTES = 256 * 1024 * 1024
_MAX_ROWS = 10_000
_QUERY_TIME_S = 30.0
_STEPS_BETWEEN_CHECKS = 10_000
_NAME = re.compile(r"[\w-]{1,100}")
_ORDER = re.compile(r"\border\s+by\b[^()]*$", re.IGNORECASE)
_TOLERANCE = "0.000001"


def read_benchmark(path: Path) -> QuestionSet:
    """Read a file of BIRD or Spider, and run its queries for the rows that are right.

    Raises:
        InvalidArgument: the file, a database or a query is wrong; names the entry.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise InvalidArgument(f"{path}: larger than {_MAX_BYTES} bytes.")
        entries = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"{path} cannot be read ({type(error).__name__}).") from error
    if not isinstance(entries, list):
        raise InvalidArgument(f"{path}: a list of questions was expected.")
    questions = [_question(path, number, entry) for number, entry in enumerate(entries)]
    return parse_set({"name": path.stem, "questions": questions}, str(path))


def _question(path: Path, number: int, entry: Any) -> dict[str, Any]:
    place = f"{path}, entry {number}"
    if not isinstance(entry, dict):
        raise InvalidArgument(f"{place}: an object was expected.")
    texts = {name: entry.get(name) for name in ("question", "db_id")}
    texts["SQL"] = entry.get("SQL") or entry.get("query")
    for name, text in texts.items():
        if not isinstance(text, str) or not text.strip():
            raise InvalidArgument(f"{place}: {name} is missing.")
    question, database, sql = map(str, texts.values())
    rows = _rows(_file(path, database, place), sql, place)
    # BIRD gives with a question what its words mean; people would ask with that knowledge.
    evidence = entry.get("evidence")
    if isinstance(evidence, str) and evidence.strip():
        question = f"{question}\nHint: {evidence}"
    return {
        "id": str(entry.get("question_id", number)),
        "question": question,
        "kind": str(entry.get("difficulty") or database),
        "backend": database,
        "expect": {
            "rows": rows,
            "ordered": bool(_ORDER.search(sql)),
            "tolerance": Decimal(_TOLERANCE),
        },
    }


def _file(path: Path, database: str, place: str) -> Path:
    if not _NAME.fullmatch(database):
        raise InvalidArgument(f"{place}: db_id {database!r} is no name of a database.")
    for folder in _FOLDERS:
        for ending in ("sqlite", "db"):
            found = path.parent / folder / database / f"{database}.{ending}"
            if found.is_file():
                return found
    raise InvalidArgument(f"{place}: there is no SQLite file of the database {database}.")


def _rows(file: Path, sql: str, place: str) -> list[list[Any]]:
    """Rows of the query: the file is opened read-only, the query ends by time and by rows."""
    until = time.monotonic() + _QUERY_TIME_S
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as opened:
            opened.text_factory = lambda raw: raw.decode("utf-8", "replace")
            opened.set_progress_handler(
                lambda: int(time.monotonic() > until), _STEPS_BETWEEN_CHECKS
            )
            found = opened.execute(sql).fetchmany(_MAX_ROWS + 1)
    except sqlite3.Error as error:
        raise InvalidArgument(f"{place}: its query fails: {error}.") from error
    if len(found) > _MAX_ROWS:
        raise InvalidArgument(f"{place}: its query has more than {_MAX_ROWS} rows.")
    return [[_cell(each) for each in row] for row in found]


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return Decimal(repr(value))
    return value.hex() if isinstance(value, bytes) else value
