"""Writes the evaluation set of the sample company from its questions and from reference queries.

::

    .venv/bin/python services/demo/evaluation_set.py services/demo/src/bos_demo/evaluation.yaml
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import yaml  # type: ignore[import-untyped]

from bos_demo.company import DEFAULT_TODAY, load_postgres
from bos_demo.dialogues import load_approved, load_clarified
from bos_demo.expectations import expected_facts, expected_rows
from bos_demo.questions import (
    ApiStep,
    CodeStep,
    FilesStep,
    MailStep,
    RagStep,
    SqlStep,
    WebStep,
    load_every_question,
)
from bos_postgres import EmbeddedPostgres, create_database

if TYPE_CHECKING:
    from bos_demo.questions import AnyStep, Question

    Company = asyncpg.Connection[asyncpg.Record]

_HEAD = """\
# Questions about the sample company for `bos eval`, with the results of independent queries.
# Written by services/demo/evaluation_set.py; do not edit it.

"""
# A database without decimals may round the last cent in another way.
_TOLERANCE = 0.011
_DELETES = "delete_workspace_file"


async def questions_of(company: Company) -> dict[str, Any]:
    """The set, as the YAML says it.

    Args:
        company: A connection to the sample company, whose schema is on its search path.
    """
    singles = [await _entry(company, each) for each in load_every_question()]
    waiting = [await _entry(company, each) for each in load_approved()]
    asked_back = [
        {"id": each.id, "kind": "clarified", "question": each.question, "expect": {"asks": True}}
        for each in load_clarified()
    ]
    return {
        "name": "The sample company",
        "context": {"current_date": DEFAULT_TODAY.isoformat()},
        "questions": [*singles, *waiting, *asked_back],
    }


async def _entry(company: Company, question: Question) -> dict[str, Any]:
    expect: dict[str, Any] = {"agents": list(question.agents)}
    if any(map(_waits, question.steps)):
        expect["approval"] = True
    else:
        expect["tolerance"] = _TOLERANCE
        expect |= await _answered(company, question)
    kind = "approved" if expect.get("approval") else question.kind
    return {"id": question.id, "kind": kind, "question": question.question, "expect": expect}


async def _answered(company: Company, question: Question) -> dict[str, Any]:
    found: dict[str, Any] = {}
    queried = [step for step in question.steps if isinstance(step, SqlStep)]
    if len(queried) == 1:
        rows = await expected_rows(company, queried[0], DEFAULT_TODAY)
        found["rows"] = [[_plain(cell) for cell in row] for row in rows]
    if question.facts or (question.steps and isinstance(question.steps[0], SqlStep)):
        found["mentions"] = [
            _plain(fact) for fact in await expected_facts(company, question, DEFAULT_TODAY)
        ]
    cited = [
        passage.document
        for step in question.steps
        if isinstance(step, RagStep)
        for passage in step.passages
    ]
    cited += [
        page.path for step in question.steps if isinstance(step, WebStep) for page in step.pages
    ]
    cited += [step.file for step in queried if step.file]
    if cited:
        found["cites"] = list(dict.fromkeys(cited))
    return found


def _waits(step: AnyStep) -> bool:
    """Whether the step waits for an approval, which an evaluation does not give."""
    if isinstance(step, ApiStep | MailStep):
        return step.approved
    if isinstance(step, FilesStep):
        return _DELETES in (step.tool, (step.operation or {}).get("operation", ""))
    return isinstance(step, CodeStep)


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value.isoformat() if isinstance(value, date) else value


async def _text() -> str:
    with (
        tempfile.TemporaryDirectory(prefix="bos-evaluation-set-") as folder,
        EmbeddedPostgres(Path(folder) / "postgres") as server,
    ):
        dsn = await create_database(server.dsn(), "company")
        await load_postgres(dsn)
        connection = await asyncpg.connect(dsn, server_settings={"search_path": "company"})
        try:
            content = await questions_of(connection)
        finally:
            await connection.close()
    text: str = yaml.safe_dump(content, allow_unicode=True, sort_keys=False, width=100)
    return _HEAD + text


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(asyncio.run(_text()), encoding="utf-8")
