"""Variants of the query in the dialects that do not run, for data and trace of the result.

Translated by code; a variant known to be translated wrongly is withheld, or written by the model
if so configured. The guard checks every variant that is returned.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from bos_sql.dialects.translate import Translation, translate
from bos_sql.steps.replies import DialectVariant

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bos_sql.steps.execute import QueryResult
    from bos_sql.steps.step_state import StepState
    from bos_sqlguard import Dialect


async def query_variants(work: StepState, result: QueryResult) -> Mapping[Dialect, str]:
    """Variants by dialect, without withheld ones, whose reason is traced."""
    live, sql = work.overview.dialect, result.query.sql
    if work.settings.variants == "none":
        return {live: sql}
    tables = [each for each in work.index.catalog.tables if each.name in result.query.used_tables]
    others: list[Dialect] = sorted(set(work.settings.variant_dialects) - {live})
    found = {
        dialect: _checked(work, dialect, translate(sql, live, dialect, tables))
        for dialect in others
    }
    if work.settings.variants == "model":
        wanted = [dialect for dialect in others if not found[dialect].sql]
        written = await asyncio.gather(*(_written(work, dialect, sql) for dialect in wanted))
        found.update(zip(wanted, written, strict=True))
    work.task.trace.message(
        "variants",
        withheld={dialect: each.withheld for dialect, each in found.items() if each.withheld},
        **{f"sql_{dialect}": each.sql for dialect, each in found.items() if each.sql},
    )
    return {live: sql, **{dialect: each.sql for dialect, each in found.items() if each.sql}}


async def _written(work: StepState, dialect: Dialect, sql: str) -> Translation:
    """Variant written by the model, within the time of the step."""
    reply = await work.model.optional(work.prompts.variant(sql, dialect), DialectVariant)
    if reply is None or not (reply.sql or "").strip():
        return Translation(withheld="the model gave none")
    return _checked(work, dialect, Translation((reply.sql or "").strip()))


def _checked(work: StepState, dialect: Dialect, translation: Translation) -> Translation:
    """``translation`` in the guard's text, or the reason why the guard refuses it."""
    if not translation.sql:
        return translation
    verdict = work.guard.verdict(dialect, translation.sql)
    if verdict.is_safe:
        return Translation(verdict.safe_sql)
    rules = ", ".join(dict.fromkeys(violation.rule for violation in verdict.violations))
    return Translation(withheld=f"refused by the guard: {rules}")
