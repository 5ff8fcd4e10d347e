"""Choice of what prompts describe: tables, verified queries; the block that all calls share."""

from __future__ import annotations

from collections.abc import Sequence

from bos_sql.database.metadata import TableSummary
from bos_sql.grounding.examples import chosen_examples, shown_text
from bos_sql.grounding.schema_excerpt import GroundingPack
from bos_sql.metrics import SqlMetrics
from bos_sql.prompts import QueryPrompts
from bos_sql.steps.metrics import named_metrics
from bos_sql.steps.step_state import StepState

_TRACED_HITS = 10
_MAX_QUERY_CHARS = 4_000
_MAX_QUERY_MESSAGES = 4


def describe(work: StepState) -> None:
    """Describe the relevant tables: all of a small schema, else those that the index suggests.

    Of a large schema, suggested tables of low relevance are described briefly, others only named.
    """
    names = [table.name for table in work.overview.tables]
    few = len(names) <= work.settings.small_schema_tables
    query = _query(work)
    hits = work.index.search_metadata(query, _TRACED_HITS)
    found = names if few else work.index.suggested_tables(query, work.settings.suggested_tables)
    work.task.trace.message(
        "search_metadata",
        query=query,
        hits=[
            {"doc_id": hit.doc.doc_id, "kind": hit.doc.kind, "score": round(hit.score, 2)}
            for hit in hits
        ],
        suggested_tables=list(found),
    )
    # A table of the overview may have been dropped before the index was read.
    work.named_metrics = named_metrics(work)
    measured = [table for metric in work.named_metrics for table in metric.tables]
    wanted = dict.fromkeys([*found, *measured])
    work.described = tuple(name for name in wanted if name in work.index)
    briefly = () if few else work.index.brief_tables(work.described, query).difference(measured)
    work.pack = work.index.pack(work.described, query, briefly=briefly, named=work.named_metrics)
    work.prompts = _prompts(work, () if work.described else _listed(work, query))
    if work.described:
        trace_pack(work)


def take_examples(work: StepState, metrics: SqlMetrics | None) -> None:
    """Choose the examples of the step, before its prompts are made; what became of each is traced.

    The gateway has tainted the step if another user wrote one of them.
    """
    task, settings = work.task, work.settings
    given = task.input.verified_queries
    if not given or not settings.verified_queries:
        return
    # A step of several has a part of the question, which may be like another one's.
    also = [task.input.question] if task.input.is_final_answer else []
    shown, outcomes = chosen_examples(
        given,
        [task.effective_task, *also],
        work.overview,
        work.guard,
        most=settings.verified_queries,
        max_chars=settings.max_verified_chars,
    )
    work.examples = shown_text(shown)
    task.trace.message(
        "verified_queries",
        shown=[each.query_id for each in shown],
        left_out={key: outcome for key, outcome in outcomes.items() if outcome != "shown"},
    )
    if metrics is not None:
        for outcome in outcomes.values():
            metrics.examples.labels(outcome).inc()


def describe_also(work: StepState, wanted: Sequence[str]) -> None:
    """Describe ``wanted`` too, and the tables through which they are joined."""
    _describe_all(work, (*wanted, *work.described))


def describe_chosen(work: StepState, wanted: Sequence[str]) -> None:
    """Describe the chosen tables instead of the suggested ones.

    If the choice names no known table: those named in the task, or suggested, or the first ones.
    """
    words = work.task.effective_task.casefold()
    names = [table.name for table in work.overview.tables]
    named = [name for name in names if name.casefold() in words]
    _describe_all(
        work, work.overview.known(wanted) or tuple(named) or work.described or tuple(names)
    )


def undescribed(work: StepState, wanted: Sequence[str]) -> tuple[str, ...]:
    """Known tables of ``wanted`` that are not described yet."""
    known = work.overview.known(wanted)
    return tuple(name for name in known if name not in work.described and name in work.index)


def list_all_tables(work: StepState) -> None:
    """List the tables with their meaning beside the described ones, for a choice."""
    work.prompts = _prompts(work, _listed(work, _query(work)))


def trace_pack(work: StepState) -> None:
    """Trace the schema excerpt that grounds the query."""
    pack = work.pack
    work.task.trace.message(
        "call_get_schema",
        tables=list(pack.suggested_tables),
        citations=[citation.doc_id for citation in pack.citations],
    )
    work.task.trace.message("grounding_pack", **pack.traced())


def _describe_all(work: StepState, tables: Sequence[str]) -> None:
    limit = work.settings.max_described_tables
    known = [name for name in dict.fromkeys(tables) if name in work.index]
    work.described = work.index.with_joining_tables(known[:limit])[:limit]
    query = _query(work)
    work.pack = (
        work.index.pack(work.described, query, named=work.named_metrics)
        if work.described
        else GroundingPack()
    )
    work.prompts = _prompts(work)
    trace_pack(work)


def _prompts(work: StepState, listed: Sequence[TableSummary] = ()) -> QueryPrompts:
    limit = work.settings.max_schema_chars
    named = [metric.name for metric in work.named_metrics]
    return QueryPrompts(
        work.task,
        work.overview,
        work.pack,
        max_chars=limit,
        listed=listed,
        named_metrics=named,
        examples=work.examples,
    )


def _query(work: StepState) -> str:
    """Query for the index: the task, with the conversation if the task matches no table."""
    task, given = work.task.effective_task, work.task.input
    if work.index.ranked_tables(task):
        return task[:_MAX_QUERY_CHARS]
    said = [each.content for each in list(given.conversation_history)[-_MAX_QUERY_MESSAGES:]]
    said += [turn.reply for turn in given.clarifications]
    return " ".join([task, given.question, *said])[:_MAX_QUERY_CHARS]


def _listed(work: StepState, query: str) -> tuple[TableSummary, ...]:
    """Tables to list with their meaning: all, or the relevant ones of a large schema."""
    tables, limit = work.overview.tables, work.settings.max_listed_tables
    if len(tables) <= limit:
        return tables
    relevant = frozenset(work.index.ranked_tables(query)[:limit])
    return tuple(table for table in tables if table.name in relevant)
