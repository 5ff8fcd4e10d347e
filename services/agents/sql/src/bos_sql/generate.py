"""Step ``generate_query``: the query in every dialect (SPEC D-09, D-10)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bos_agentkit import QUERY_ERROR, AgentFailure
from bos_llm import assistant
from bos_sql.prompts import generate_messages
from bos_sql.replies import GeneratedSql

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bos_sql.work import Work
    from bos_sqlguard import Dialect

_MAX_NOTES_CHARS = 500


@dataclass(frozen=True, slots=True)
class Draft:
    """A query nobody has checked yet, by dialect; a variant may be missing or empty."""

    variants: Mapping[Dialect, str]

    def sql(self, dialect: Dialect) -> str:
        """The variant for ``dialect``; empty if there is none."""
        return self.variants.get(dialect, "").strip()


async def generate_query(work: Work) -> Draft:
    """Ask the model for a query; what went wrong before is in the conversation (SPEC D-24).

    Raises:
        AgentFailure: QueryError: the model says that no query can answer the task.
    """
    if not work.messages:
        work.messages = generate_messages(
            work.task, work.overview, work.pack, work.assumptions, work.settings.max_schema_chars
        )
    reply = await work.ask.ask(work.messages, GeneratedSql)
    work.messages.append(assistant(reply.model_dump_json()))
    work.assumptions.extend(each for each in reply.assumptions if each not in work.assumptions)
    draft = Draft(
        {"postgres": reply.sql_postgres, "tsql": reply.sql_server, "sqlite": reply.sql_sqlite}
    )
    sql = draft.sql(work.overview.dialect)
    work.task.trace.decision(
        "generate_query",
        query=sql,
        used_tables=reply.used_tables,
        notes=reply.notes,
        assumptions=reply.assumptions,
    )
    if not sql:
        notes = " ".join(reply.notes.split())[:_MAX_NOTES_CHARS]
        raise AgentFailure(
            QUERY_ERROR, f"No query on this database can answer that. {notes}".rstrip()
        )
    return draft
