"""Checks of a step's result: cut rows, repeated rows, totals, empty results.

A result whose rows were cut, or repeated by a join, is asked for anew once, by the model that wrote
its query; what then still holds is a caveat, which the answer states.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bos_agentkit import AgentFailure
from bos_chassis.values import from_value
from bos_errors import BosError
from bos_llm import assistant
from bos_sql.checks.empty import (
    Finding,
    any_row,
    empty_probes,
    explanation,
    is_empty,
    is_settled,
    lies_deeper,
)
from bos_sql.checks.joins import fan_out, fan_out_probe
from bos_sql.checks.probing import Prober
from bos_sql.checks.reading import read_shapes
from bos_sql.checks.shape import Shape, is_aggregated, parsed
from bos_sql.checks.totals import reconciliation, totals_probe
from bos_sql.prompts import rewrite
from bos_sql.steps.execute import QueryResult, execute_query, parse_results
from bos_sql.steps.filters import describe_filters
from bos_sql.steps.metrics import metric_problem
from bos_sql.steps.replies import GeneratedSql, QueryDraft
from bos_sql.steps.review import safety_check
from bos_sql.steps.step_state import AttemptFailed, StepState

# The rest of the step's time is needed for the new query and the answer.
_SHARE_OF_TIME = 0.4


@dataclass(slots=True)
class Checked:
    """A result after its checks."""

    result: QueryResult
    is_aggregated: bool
    caveats: list[str] = field(default_factory=list)
    """What the answer has to state."""
    done: list[dict[str, Any]] = field(default_factory=list)
    """Each check that ran: ``check``, ``found`` (empty: nothing to state)."""

    @property
    def is_cut(self) -> bool:
        """Whether rows are missing, as one query returns no more."""
        return any(each["check"] == "rows" and each["found"] for each in self.done)

    def record(self, check: str, found: str) -> None:
        """Keep the outcome of a check."""
        self.done.append({"check": check, "found": found})
        if found:
            self.caveats.append(found)


async def checked(work: StepState, result: QueryResult) -> Checked:
    """Check a result, and have its query rewritten once where that can mend it."""
    prober = Prober(work)
    first = await _check(work, result, prober)
    problem = _mendable(work, first)
    if not problem:
        return _traced(work, first)
    another = await _rewritten(work, first, problem)
    if another is None:
        return _traced(work, first)
    second = await _check(work, another, prober)
    is_better = another.has_values and not _mendable(work, second)
    work.task.trace.decision(
        "Rewrote the query after a check",
        problem=problem,
        query=another.query.sql,
        state="used" if is_better else "the first result stands",
    )
    if not is_better:
        return _traced(work, first)
    work.last_query = another.query.sql
    return _traced(work, second)


async def _check(work: StepState, result: QueryResult, prober: Prober) -> Checked:
    dialect = work.overview.dialect
    tree = parsed(result.query.sql, dialect)
    done = Checked(result, is_aggregated(tree))
    shapes = read_shapes(tree, dialect, work.index.catalog)
    if is_empty(result.table):
        if work.settings.check_empty:
            await _explain_empty(shapes, prober, done)
        return done
    if not done.is_aggregated:
        if work.settings.aggregate_first and is_cut(work, result):
            done.record("rows", _cut_text(len(result.table.rows)))
        return done
    if work.settings.check_joins:
        for shape in shapes:
            await _compare_counts(shape, prober, done)
    if work.settings.check_totals and shapes and not shapes[0].part:
        await _reconcile(shapes[0], prober, done)
    return done


def is_cut(work: StepState, result: QueryResult) -> bool:
    """Whether as many rows were read as one query may return, unless the request wanted no more."""
    rows, asked = len(result.table.rows), work.task.input
    if asked.HasField("max_rows") and rows >= asked.max_rows:
        return False
    return rows >= work.overview.max_rows


def _cut_text(rows: int) -> str:
    return (
        f"Only the first {rows} rows were read, as one query returns no more. Ask for totals, such"
        " as per month or per group, for the highest or lowest ones, or for a smaller part."
    )


async def _explain_empty(shapes: Sequence[Shape], prober: Prober, done: Checked) -> None:
    """Explain an empty result by its query, or by the first of its parts that is empty."""
    if not shapes:
        return
    said: str | None = None
    is_stated = bool(describe_filters(done.result.query.sql, shapes[0].dialect))
    for shape in shapes:
        if shape.part and not await _has_no_rows(shape, prober):
            continue
        # A single row of NULL or 0 may well be what the filters leave.
        is_value = bool(done.result.table.rows) and bool(shape.filters)
        if is_value and not shape.part and not await _has_no_rows(shape, prober):
            return
        findings: list[Finding] = []
        for probe in empty_probes(shape, prober.left):
            table = await prober.table(probe.query, "empty result")
            if table is None:
                break
            findings.append(Finding(probe, bool(table.rows)))
            if is_settled(findings[-1]):
                break
        if not findings:
            continue
        said = shape.said(explanation(shape, findings, is_stated=is_stated))
        if not lies_deeper(findings):
            break
    if said is not None:
        done.record("empty result", said)


async def _has_no_rows(shape: Shape, prober: Prober) -> bool:
    """Whether a part is empty, and has filters that may be why."""
    if not shape.filters:
        return False
    table = await prober.table(any_row(shape, shape.filters), "empty result")
    return table is not None and not table.rows


async def _compare_counts(shape: Shape, prober: Prober, done: Checked) -> None:
    probe = fan_out_probe(shape)
    if probe is None:
        return
    table = await prober.table(probe, "joins")
    if table is not None and table.rows:
        done.record("joins", fan_out(shape, [from_value(each) for each in table.rows[0].values]))


async def _reconcile(shape: Shape, prober: Prober, done: Checked) -> None:
    result = done.result.table
    probe = totals_probe(shape, result)
    # Repeated rows are repeated in both queries.
    if probe is None or done.caveats:
        return
    table = await prober.table(probe.query, "totals")
    if table is not None and table.rows:
        totals = [from_value(each) for each in table.rows[0].values]
        done.record("totals", reconciliation(probe, result, totals))


def _mendable(work: StepState, done: Checked) -> str:
    """Problem that another query may avoid; empty if there is none."""
    found = (e["found"] for e in done.done if e["check"] in ("rows", "joins"))
    return str(next(filter(None, found), ""))


async def _rewritten(work: StepState, first: Checked, problem: str) -> QueryResult | None:
    """Result of a query that the model writes anew; None: the first one stands."""
    query = first.result.query
    messages = [*work.messages, rewrite(problem, query.sql, raw=not first.is_aggregated)]
    schema: type[GeneratedSql | QueryDraft] = (
        GeneratedSql if work.model.tier == "small" else QueryDraft
    )
    reply = await work.model.optional(messages, schema, share=_SHARE_OF_TIME)
    sql = "" if reply is None else (reply.sql or "").strip()
    if reply is None or not sql:
        return None
    try:
        approved = safety_check(work, sql)
        is_other = approved.sql != query.sql and set(approved.used_tables) & set(query.used_tables)
        if not is_other or metric_problem(work, approved):
            return None
        result = parse_results(work, approved, await execute_query(work, approved))
    except (AttemptFailed, AgentFailure, BosError) as error:
        work.task.trace.message("The rewritten query failed", error=str(error))
        return None
    work.messages = [*messages, assistant(reply.model_dump_json())]
    return result


def _traced(work: StepState, done: Checked) -> Checked:
    for each in done.done:
        work.task.trace.decision("check_result", **each)
    return done
