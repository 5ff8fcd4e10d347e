"""Table listing: answers "Which tables are there?" from metadata, without query or model."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bos_agentkit import succeeded
from bos_chassis.values import make_table, table_rows
from bos_sql.database.metadata import database_sources

if TYPE_CHECKING:
    from bos.agent.v1 import AgentResult
    from bos_agentkit import AgentTask
    from bos_sql.database.metadata import Overview

# A task of these words only, "table" among them, is a request for the list of tables. Any other
# word may change the meaning ("tables with overdue invoices"), so that the model decides.
_SUBJECT = frozenset({"table", "tables"})
_WORDS = _SUBJECT | frozenset(
    """
    a about access all an and are available can contain contained containing contains could
    database db describe description descriptions display do does each every exist existing exists
    for get give has have hold holds i in inside is it its know list me meaning meanings name
    names of our out overview please present schema show tell that the their them there these they
    this those to us what which with you your
    """.split()  # noqa: SIM905  forty words read better without forty pairs of quotes
)
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?|\S")
_PUNCTUATION = frozenset(".,:;?!\"'()")
_MAX_NAMED_TABLES = 30


def asks_for_tables(task: str, overview: Overview) -> bool:
    """Whether ``task`` is only a request for the list of tables."""
    words = {word for word in _WORD.findall(task.casefold()) if word not in _PUNCTUATION}
    if any(table.name.casefold() in words for table in overview.tables):
        return False
    return bool(words & _SUBJECT) and words <= _WORDS


def tables_result(task: AgentTask, overview: Overview) -> AgentResult:
    """Result with the list of tables, sorted by name, as a table and a sentence."""
    tables = sorted(overview.tables, key=lambda each: each.name)
    table = make_table(
        ["table_name", "description"], [[each.name, each.comment] for each in tables]
    )
    names = [each.name for each in tables]
    named = ", ".join(names[:_MAX_NAMED_TABLES])
    more = len(names) - _MAX_NAMED_TABLES
    answer = (
        f"The database {overview.database} has {len(names)} "
        f"{'table' if len(names) == 1 else 'tables'}: {named}"
        + (f" and {more} more." if more > 0 else ".")
        if names
        else f"The database {overview.database} has no tables that may be read."
    )
    task.trace.decision("Answered from metadata; no query was needed", tables=len(names))
    return succeeded(
        task,
        answer=answer,
        table=table,
        data={
            "rows": table_rows(table),
            "row_count": len(names),
            "used_tables": names,
            "citations": [
                {"doc_id": f"{overview.database}.{each.name}", "snippet": each.comment}
                for each in tables
            ],
        },
        sources=database_sources(overview, names),
    )
