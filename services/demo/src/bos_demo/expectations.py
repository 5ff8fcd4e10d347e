"""Comparison of answers of Bos with the results of reference queries."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, datetime
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import asyncpg

from bos_demo.questions import Question, SqlStep

TOLERANCE = Decimal("0.011")
"""Allowed difference: a backend without decimals may round the last cent differently."""

_GROUPING = re.compile(r"(?<=\d),(?=\d)")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def plain(value: Any) -> Any:
    """Normalise a cell of any backend to None, text or a number with two decimals."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float | Decimal):
        return Decimal(str(value)).quantize(Decimal("0.01"), rounding=ROUND_HALF_UP)
    if isinstance(value, date | datetime):
        return value.isoformat()
    return str(value)


def same_cell(one: Any, other: Any) -> bool:
    """Return whether two cells are equal; numbers may differ by `TOLERANCE`."""
    one, other = plain(one), plain(other)
    if isinstance(one, Decimal) and isinstance(other, Decimal):
        return abs(one - other) <= TOLERANCE
    return bool(one == other)


def same_rows(one: Sequence[Sequence[Any]], other: Sequence[Sequence[Any]]) -> bool:
    """Return whether two results have the same rows in the same order."""
    return len(one) == len(other) and all(
        len(mine) == len(theirs) and all(map(same_cell, mine, theirs))
        for mine, theirs in zip(one, other, strict=True)
    )


def mentions(answer: str, fact: Any) -> bool:
    """Return whether `answer` states `fact`.

    Numbers are compared by value, so Rs.1,75,206.00 states 175206; texts case-insensitively.
    """
    value = plain(fact)
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = plain(Decimal(value))
    if isinstance(value, Decimal):
        # A minus sign may be expressed in words ("fell by").
        numbers = _NUMBER.findall(_GROUPING.sub("", answer))
        return any(same_cell(abs(Decimal(number)), abs(value)) for number in numbers)
    return str(value).casefold() in answer.casefold()


async def expected_rows(
    connection: asyncpg.Connection[asyncpg.Record], step: SqlStep, today: date
) -> list[asyncpg.Record]:
    """Return the expected table of the step, by the reference query.

    The connection's search path must contain the company's schema.
    """
    return await connection.fetch(step.reference_query(today))


async def expected_facts(
    connection: asyncpg.Connection[asyncpg.Record], question: Question, today: date
) -> list[Any]:
    """Return every value that the composed answer must mention."""
    if query := question.facts_query(today):
        record = await connection.fetchrow(query)
    elif question.facts:
        return list(question.facts)
    else:
        first = question.steps[0]
        if first.agent != "sql":
            raise ValueError(f"{question.id}: a question without a query must list its facts")
        record = (await expected_rows(connection, first, today))[0]
    values = [] if record is None else list(record)
    return [part for value in values for part in _parts(value)]


def _parts(value: Any) -> list[Any]:
    return list(value.split("|")) if isinstance(value, str) else [value]
