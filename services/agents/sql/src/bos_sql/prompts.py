"""What the SQL agent tells its model and shows it.

Every user message is made of sections (headings in :func:`task_sections` and the functions below);
text from the database, names, comments and cells alike, stands between <untrusted> marks.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bos.common.v1 import MessageRole
from bos_agentkit import (
    SETTLED,
    UNTRUSTED_NOTICE,
    format_dependencies,
    format_entities,
    mark_untrusted,
    prompt_sections,
)
from bos_chassis.values import render_value
from bos_llm import Message, system, user

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bos_agentkit import AgentTask
    from bos_sql.grounding.pack import GroundingPack
    from bos_sql.metadata import Overview, TableSummary
    from bos_sqlguard import Dialect

Section = tuple[str, str]

DIALECT_NAMES: dict[Dialect, str] = {
    "postgres": "PostgreSQL",
    "tsql": "SQL Server",
    "sqlite": "SQLite",
}

# SPEC D-24, word for word.
RETRY_FEEDBACK = """\
The previous SQL query failed to execute.
Error details: {error_text}
Failing query:
{query}
Generate a corrected read-only SQL query that addresses the error and try again using only the authorised tables."""  # noqa: E501

_CHOOSE = """\
You prepare database queries. You are shown a task and the tables of a database. Decide which tables
hold what the task needs, and whether the task is clear enough to be answered by one query.
It is unclear if a word in it could mean several columns, groups or periods of this database that
would give different numbers. It is clear if only one reading makes sense; do not ask about what
the task, the conversation, the date or the tables already settle, and never again about what the
user has settled. Build questions and options only from tables, columns and values that you are
shown; invent none. Name a column in an option as table.column, in brackets after any words."""

_CHECK_CLARITY = """\
You decide whether a task can be answered by one query on the tables shown, or whether the user has
to settle something first. Build questions and options only from tables, columns and values that you
are shown; invent none. Name a column in an option as table.column, in brackets after any words.
Never ask again about what the user has settled. If the columns leave only one sensible reading, the
task is clear."""

_GENERATE = """\
You write one SQL query that answers a task, once for each dialect asked for. Rules:
- One SELECT statement (WITH is fine); nothing that writes, calls procedures or changes settings.
- Only the tables and columns listed under "### Schema", joined as listed there.
- What "### Metrics" defines, if there is such a section, is computed by that formula.
- Prefer aggregates to rows; return only the columns that the task needs, with telling names.
- At most {max_rows} rows and {max_columns} columns; order the rows when order matters.
- Take today from "### Date", as literals, not from the clock of the database.
- Filter text by values as they are stored, not as they are spoken of.
If the schema cannot answer the task, leave the queries empty and say why in notes."""

_REVIEW = """\
You review an SQL query before it runs: does it answer the task, with the right tables, joins,
filters, periods and aggregates? Judge correctness only, not style. If it is wrong, give the whole
corrected {dialect} query, one SELECT on the tables shown; otherwise leave corrected_sql null."""

_TRIAGE = """\
A read-only SQL query failed in the database. Judging by the error message, choose:
RETRY_WITH_PATCH: a corrected SELECT on the tables shown will work; give it in every dialect.
ASK_CLARIFICATION: only the user can say what is meant; give the questions.
STOP: no query can succeed; say why in user_message, in plain words."""

_INTERPRET = """\
You put the result of a database query into words for a business reader. Use only the numbers
shown, copy them exactly, and do not speak of SQL. If the result was cut off, say that there is
more. Answer in one to three sentences without line breaks."""

_TEMPORAL_KEYS = (
    "current_datetime_utc",
    "current_date",
    "current_date_start_hour",
    "current_date_end_hour",
)
_MAX_INPUT_CHARS = 5_000
_MAX_MESSAGES = 10
_MAX_MESSAGE_CHARS = 1_000
_MAX_QUESTION_CHARS = 2_000


def task_sections(task: AgentTask) -> list[Section]:
    """What is asked, and all that was given along; sections without content are left out."""
    given = task.input
    question = given.question.strip()[:_MAX_QUESTION_CHARS]
    inputs = "\n".join(
        f"{name} = {render_value(given.sub_task_input[name])}"
        for name in sorted(given.sub_task_input)
    )
    sections = [
        ("### Task", task.effective_task),
        (
            "### Question of the user (background)",
            "" if question == task.effective_task else question,
        ),
        (f"### {SETTLED}", "" if task.settled == "none" else task.settled),
        ("### Conversation", _conversation(task)),
        ("### Date", date_text(task)),
        ("### About the user", "" if task.profile == "none" else task.profile),
        ("### Entities", format_entities(given.entities)),
        ("### Input", _fenced(inputs[:_MAX_INPUT_CHARS])),
        (
            "### Context from other agents",
            _fenced(format_dependencies(given.dependency_outputs))
            if given.dependency_outputs
            else "none",
        ),
    ]
    return [section for section in sections if section[1]]


def date_text(task: AgentTask) -> str:
    """The date keys of the request's context, one per line (SPEC A-06)."""
    fields = task.input.context.fields
    return "\n".join(
        f"{key}: {fields[key].string_value}" for key in _TEMPORAL_KEYS if key in fields
    )


def choose_messages(
    task: AgentTask,
    overview: Overview,
    listed: Sequence[TableSummary],
    pack: GroundingPack,
    max_chars: int,
) -> list[Message]:
    """For ``SchemaChoice``: the overview, and the columns of the tables that seem to matter.

    Args:
        task: The step.
        overview: Of the database.
        listed: Its tables that are shown with their meaning; the others are named.
        pack: What is known about all tables, or of many about those that the index suggests.
        max_chars: Longest overview, and longest schema.
    """
    tables = "\n".join(
        f"{table.name}: {' '.join(table.comment.split())}" if table.comment else table.name
        for table in listed
    )
    shown = {table.name for table in listed}
    others = [table.name for table in overview.tables if table.name not in shown]
    if others:
        tables += f"\nOther tables: {', '.join(others)}"
    about = f"Database {overview.database}. {overview.description}".rstrip()
    described = len(pack.suggested_tables) in (0, len(overview.tables))
    partly = "" if described else "Under ### Schema are the tables that seem to matter. "
    return _messages(
        _CHOOSE,
        [
            *task_sections(task),
            ("### Tables", mark_untrusted(f"{about}\n{tables}"[:max_chars])),
            *(_schema_sections(pack, max_chars) if pack.table_docs else []),
            (
                "### Instructions",
                f"{partly}Choose the tables, and say whether the task is clear. If it is not: what "
                "to ask, with options, and what you would assume without an answer.",
            ),
        ],
    )


def clarity_messages(task: AgentTask, pack: GroundingPack, max_chars: int) -> list[Message]:
    """For ``ClarityCheck``: the columns of the tables in question."""
    return _messages(
        _CHECK_CLARITY,
        [
            *task_sections(task),
            *_schema_sections(pack, max_chars),
            (
                "### Instructions",
                "Say whether the task is clear. If it is not: what to ask, with options, and what "
                "you would assume without an answer.",
            ),
        ],
    )


def generate_messages(
    task: AgentTask,
    overview: Overview,
    pack: GroundingPack,
    assumptions: Sequence[str],
    max_chars: int,
) -> list[Message]:
    """For ``GeneratedSql``; feedback is appended to these (SPEC D-11, D-24)."""
    rules = _GENERATE.format(max_rows=overview.max_rows, max_columns=overview.max_columns)
    return _messages(
        rules,
        [
            *task_sections(task),
            *_schema_sections(pack, max_chars),
            ("### Assumptions", _listed(assumptions)),
            (
                "### Instructions",
                "Write the query for PostgreSQL, SQL Server and SQLite. "
                f"The database is {DIALECT_NAMES[overview.dialect]}; that variant will run.",
            ),
        ],
    )


def review_messages(
    task: AgentTask, dialect: Dialect, pack: GroundingPack, sql: str, max_chars: int
) -> list[Message]:
    """For ``QueryReview``."""
    return _messages(
        _REVIEW.format(dialect=DIALECT_NAMES[dialect]),
        [
            *task_sections(task),
            *_schema_sections(pack, max_chars),
            ("### Query", sql),
            ("### Instructions", "Say whether the query is correct."),
        ],
    )


def triage_messages(task: AgentTask, pack: GroundingPack, sql: str, error: str) -> list[Message]:
    """For ``ErrorTriage``: the query, the error and the citations (SPEC D-27)."""
    citations = "\n".join(f"[{each.doc_id}] {each.snippet}" for each in pack.citations)
    fields = "\n".join(pack.field_docs)[:_MAX_INPUT_CHARS]
    return _messages(
        _TRIAGE,
        [
            ("### Task", task.effective_task),
            *([(f"### {SETTLED}", task.settled)] if task.input.clarifications else []),
            ("### Query", sql),
            ("### Error", mark_untrusted(error)),
            ("### Citations", mark_untrusted(f"{citations}\n{fields}")),
            ("### Instructions", "Choose the action."),
        ],
    )


def interpret_messages(
    task: AgentTask, preview: str, stats: str, assumptions: Sequence[str]
) -> list[Message]:
    """For ``ResultInterpretation``: the limited preview and the statistics alone (SPEC D-30)."""
    prompt = prompt_sections(
        task=task.effective_task,
        entities=format_entities(task.input.entities),
        dependencies="none",
        source_text=preview,
        instructions=f"Put the result under Source Text into words.\nResult: {stats}\n"
        f"Assumptions made: {_listed(assumptions)}",
        profile=task.profile,
        settled=task.settled,
        tainted=True,
    )
    return [system(f"{_INTERPRET}\n{UNTRUSTED_NOTICE}"), user(prompt)]


def feedback(error_text: str, query: str) -> Message:
    """What the model hears about a query that failed (SPEC D-24)."""
    return user(RETRY_FEEDBACK.format(error_text=error_text, query=query))


def json_text(value: Any) -> str:
    """``value`` as JSON on one line."""
    return json.dumps(value, ensure_ascii=False)


def _messages(rules: str, sections: Iterable[Section]) -> list[Message]:
    prompt = "\n\n".join(f"{heading}\n{body}" for heading, body in sections)
    return [system(f"{rules}\n{UNTRUSTED_NOTICE}"), user(prompt)]


def _schema_sections(pack: GroundingPack, max_chars: int) -> list[Section]:
    """The tables; and, where somebody has defined measures, how they are computed."""
    sections = [("### Schema", mark_untrusted(pack.text(max_chars)))]
    if pack.metric_docs:
        sections.append(("### Metrics", _listed(pack.metric_docs)[:max_chars]))
    return sections


def _conversation(task: AgentTask) -> str:
    lines = []
    for message in list(task.input.conversation_history)[-_MAX_MESSAGES:]:
        role = MessageRole.Name(message.role).removeprefix("MESSAGE_ROLE_").lower()
        lines.append(f"{role}: {' '.join(message.content.split())[:_MAX_MESSAGE_CHARS]}")
    return "\n".join(lines)


def _fenced(text: str) -> str:
    return mark_untrusted(text) if text else ""


def _listed(items: Sequence[str]) -> str:
    return "\n".join(f"- {item}" for item in items) or "none"
