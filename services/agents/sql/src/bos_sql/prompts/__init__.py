"""Prompts of the SQL agent.

Every call about the query starts with the same two parts, so that a provider's prompt cache
serves all calls of a step: the rules as system message, and a user message that begins with the
schema. After the schema come date, inputs and task; the kind of work is last. Untrusted text
(names, comments, cells, errors, conversation), and queries, which may repeat it, stand between
<untrusted> marks.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bos_agentkit import (
    SETTLED,
    UNTRUSTED_NOTICE,
    format_dates,
    format_dependencies,
    format_entities,
    mark_untrusted,
    prompt_sections,
)
from bos_chassis.values import render_value
from bos_llm import Message, prompt_file, system, user

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bos_agentkit import AgentTask
    from bos_sql.database.metadata import Overview, TableSummary
    from bos_sql.grounding.schema_excerpt import GroundingPack
    from bos_sqlguard import Dialect

Section = tuple[str, str]

DIALECT_NAMES: dict[Dialect, str] = {
    "duckdb": "DuckDB",
    "mysql": "MySQL (or MariaDB)",
    "postgres": "PostgreSQL",
    "tsql": "SQL Server",
    "sqlite": "SQLite",
}

_ROLE = prompt_file(__name__, "role")
_DRAFT = prompt_file(__name__, "draft")
_ASK = prompt_file(__name__, "ask")
_ASSUME = prompt_file(__name__, "assume")
_CHOOSE = prompt_file(__name__, "choose")
_CLARITY = prompt_file(__name__, "clarity")
_GENERATE = prompt_file(__name__, "generate")
_REVIEW = prompt_file(__name__, "review")
_TRIAGE = prompt_file(__name__, "triage")
_VARIANT = prompt_file(__name__, "variant")
_FEEDBACK = prompt_file(__name__, "feedback")
_NAMED = prompt_file(__name__, "named_metrics")
_DISAGREES = prompt_file(__name__, "metric_disagrees")
_REWRITE_ROWS = prompt_file(__name__, "rewrite_rows")
_REWRITE_JOINS = prompt_file(__name__, "rewrite_joins")
_INTERPRET = prompt_file(__name__, "interpret")
_VERIFIED = prompt_file(__name__, "verified")

_MAX_INPUT_CHARS = 5_000
_MAX_QUESTION_CHARS = 2_000
_MAX_DESCRIPTION_CHARS = 300


class QueryPrompts:
    """Prompts of one step's calls about its query; they differ only at their end.

    Args:
        task: The step.
        overview: Overview of the database.
        pack: Schema excerpt of the described tables.
        max_chars: Longest schema.
        listed: Further tables to list with their meaning; usually none.
        named_metrics: Names of the metrics that the question names.
        examples: Verified queries for similar questions; usually none.
    """

    def __init__(
        self,
        task: AgentTask,
        overview: Overview,
        pack: GroundingPack,
        *,
        max_chars: int,
        listed: Sequence[TableSummary] = (),
        named_metrics: Sequence[str] = (),
        examples: str = "",
    ) -> None:
        rules = _ROLE.fill(
            dialect=DIALECT_NAMES[overview.dialect],
            max_rows=str(overview.max_rows),
            max_columns=str(min(overview.max_columns, overview.shown_columns or 2**31)),
        )
        self._system = system(f"{rules}\n{UNTRUSTED_NOTICE}")
        self._shared = _joined(
            [
                *_schema_sections(overview, pack, listed, max_chars),
                *_metric_sections(pack, named_metrics, max_chars),
                *_example_sections(examples),
                *task_sections(task),
            ]
        )

    def draft(self, assumptions: Sequence[str], *, may_ask: bool) -> list[Message]:
        """Messages for ``QueryDraft``; feedback is appended to these."""
        if_unclear = (_ASK if may_ask else _ASSUME).text
        return self._messages(
            [*_assumed(assumptions), ("### Work", _DRAFT.fill(if_unclear=if_unclear))]
        )

    def choose(self) -> list[Message]:
        """Messages for ``SchemaChoice``."""
        return self._messages([("### Work", _CHOOSE.text)])

    def clarity(self) -> list[Message]:
        """Messages for ``ClarityCheck``."""
        return self._messages([("### Work", _CLARITY.text)])

    def generate(self, assumptions: Sequence[str]) -> list[Message]:
        """Messages for ``GeneratedSql``; feedback is appended to these."""
        return self._messages([*_assumed(assumptions), ("### Work", _GENERATE.text)])

    def review(self, sql: str, assumptions: Sequence[str]) -> list[Message]:
        """Messages for ``QueryReview``."""
        return self._messages(
            [*_assumed(assumptions), _query_section(sql), ("### Work", _REVIEW.text)]
        )

    def triage(self, pack: GroundingPack, sql: str, error: str) -> list[Message]:
        """Messages for ``ErrorTriage``: the query, the error and citations of the metadata."""
        citations = "\n".join(f"[{each.doc_id}] {each.snippet}" for each in pack.citations)
        return self._messages(
            [
                ("### Citations", mark_untrusted(citations[:_MAX_INPUT_CHARS])),
                _query_section(sql),
                ("### Error", mark_untrusted(error)),
                ("### Work", _TRIAGE.text),
            ]
        )

    def variant(self, sql: str, dialect: Dialect) -> list[Message]:
        """Messages for ``DialectVariant``: the query in another dialect."""
        work = _VARIANT.fill(dialect=DIALECT_NAMES[dialect])
        return self._messages([_query_section(sql), ("### Work", work)])

    def _messages(self, last: Sequence[Section]) -> list[Message]:
        return [self._system, user(f"{self._shared}\n\n{_joined(last)}")]


def task_sections(task: AgentTask) -> list[Section]:
    """Sections of the step's inputs, then its task, without empty ones."""
    given = task.input
    question = given.question.strip()[:_MAX_QUESTION_CHARS]
    inputs = "\n".join(
        f"{name} = {render_value(given.sub_task_input[name])}"
        for name in sorted(given.sub_task_input)
    )
    sections = [
        ("### Date", format_dates(given.context.fields, periods=True)),
        *((f"### {heading}", body) for heading, body in task.user_sections),
        ("### Entities", format_entities(given.entities) if given.entities else ""),
        ("### Input", _fenced(inputs[:_MAX_INPUT_CHARS])),
        (
            "### Context from other agents",
            _fenced(
                format_dependencies(given.dependency_outputs) if given.dependency_outputs else ""
            ),
        ),
        (
            "### Question of the user (background)",
            "" if question == task.effective_task else question,
        ),
        (f"### {SETTLED}", "" if task.settled == "none" else task.settled),
        ("### Task", task.effective_task),
    ]
    return [section for section in sections if section[1]]


def interpret_messages(
    task: AgentTask, preview: str, stats: str, assumptions: Sequence[str]
) -> list[Message]:
    """Messages for ``ResultInterpretation``: only the limited preview and the statistics."""
    question = " ".join(task.input.question.split())[:_MAX_QUESTION_CHARS]
    prompt = prompt_sections(
        task=task.effective_task,
        entities=format_entities(task.input.entities),
        dependencies="none",
        source_text=preview,
        instructions="Put the result under Source Text into words.\n"
        + (f"Question of the user: {question}\n" if question else "")
        + f"Result: {stats}\nAssumptions made: {_listed(assumptions)}",
        profile=task.profile,
        settled=task.settled,
        tainted=True,
    )
    return [system(f"{_INTERPRET.text}\n{UNTRUSTED_NOTICE}"), user(prompt)]


def feedback(error_text: str, query: str) -> Message:
    """Message about a query that failed; error and query are marked untrusted."""
    return user(_FEEDBACK.fill(error_text=mark_untrusted(error_text), query=mark_untrusted(query)))


def metric_feedback(problem: str, query: str) -> Message:
    """Message about a query that computes a named metric in another way than its definition."""
    return user(_DISAGREES.fill(problem=mark_untrusted(problem), query=mark_untrusted(query)))


def rewrite(problem: str, query: str, *, raw: bool) -> Message:
    """Message about a query that ran, and whose rows are cut (``raw``) or repeated by a join."""
    text = _REWRITE_ROWS if raw else _REWRITE_JOINS
    return user(text.fill(problem=mark_untrusted(problem), query=mark_untrusted(query)))


def json_text(value: Any) -> str:
    """``value`` as one line of JSON."""
    return json.dumps(value, ensure_ascii=False)


def _schema_sections(
    overview: Overview, pack: GroundingPack, listed: Sequence[TableSummary], max_chars: int
) -> list[Section]:
    """Section of the tables."""
    about = " ".join(overview.description.split())[:_MAX_DESCRIPTION_CHARS]
    described = frozenset(pack.suggested_tables)
    meant = [each for each in listed if each.name not in described]
    with_meaning = frozenset(each.name for each in meant)
    named = [
        table.name
        for table in overview.tables
        if table.name not in described and table.name not in with_meaning
    ]
    parts = [
        about,
        pack.text(max_chars),
        "\n".join(_meaning(each) for each in meant)[:max_chars],
        f"Other tables: {', '.join(named)}"[:max_chars] if named else "",
    ]
    return [("### Schema", mark_untrusted("\n".join(part for part in parts if part)))]


def _metric_sections(pack: GroundingPack, named: Sequence[str], max_chars: int) -> list[Section]:
    """Section of the curated metrics, if any, and which of them the query has to compute."""
    if not pack.metric_docs:
        return []
    text = "\n".join(pack.metric_docs)[:max_chars]
    if named:
        text += f"\n{_NAMED.fill(names=', '.join(named))}"
    return [("### Metrics", text)]


def _example_sections(examples: str) -> list[Section]:
    """Section of verified queries, if any; others may have written them."""
    if not examples:
        return []
    return [("### Verified queries", f"{_VERIFIED.text}\n{mark_untrusted(examples)}")]


def _meaning(table: TableSummary) -> str:
    comment = " ".join(table.comment.split())
    return f"{table.name}: {comment}" if comment else table.name


def _query_section(sql: str) -> Section:
    """Section of a query, marked untrusted: cells, comments or questions may have injected text."""
    return ("### Query", mark_untrusted(sql))


def _assumed(assumptions: Sequence[str]) -> list[Section]:
    return [("### Assumptions", _listed(assumptions))] if assumptions else []


def _joined(sections: Iterable[Section]) -> str:
    return "\n\n".join(f"{heading}\n{body}" for heading, body in sections)


def _fenced(text: str) -> str:
    return mark_untrusted(text) if text else ""


def _listed(items: Sequence[str]) -> str:
    return "\n".join(f"- {item}" for item in items) or "none"
