"""How PostgreSQL executed every statement of a database, by its own account (``auto_explain``)."""

import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bos_postgres import EmbeddedPostgres, connect

_GROWING = re.compile(r"(runs|run_events|approvals|webhook_deliveries)(_|$)")
"""Tables that have a past; partitions have such names as well."""
_SETTINGS = {
    "session_preload_libraries": "auto_explain",
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_timing": "off",
    "auto_explain.log_nested_statements": "on",
    "auto_explain.log_format": "json",
}
_BEGINS = "  plan:"


@dataclass(frozen=True, slots=True)
class Plan:
    """One execution of a statement."""

    statement: str
    root: dict[str, Any]

    def nodes(self) -> Iterator[dict[str, Any]]:
        """All nodes of the plan."""
        waiting = [self.root]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += node.get("Plans", [])


@asynccontextmanager
async def explaining(server: EmbeddedPostgres, dsn: str) -> AsyncIterator[Callable[[], list[Plan]]]:
    """Let every session begun in the block explain itself; yields what reads the explanations."""
    async with connect(dsn) as connection:
        database = await connection.fetchval("SELECT current_database()")
        for name, value in _SETTINGS.items():
            await connection.execute(f"ALTER DATABASE {database} SET {name} = '{value}'")
        begins = server.log_file.stat().st_size
        yield lambda: _plans(server.log_file, begins)
        await connection.execute(f"ALTER DATABASE {database} RESET session_preload_libraries")


def _plans(log: Path, begins: int) -> list[Plan]:
    """Those of the server's log behind a position."""
    with log.open("rb") as file:
        file.seek(begins)
        lines = file.read().decode("utf-8", errors="replace").splitlines()
    found, block = [], None
    for line in [*lines, ""]:
        if block is not None and line.startswith("\t"):
            block.append(line)
            continue
        if block:
            document = json.loads("\n".join(block))
            found.append(Plan(" ".join(document["Query Text"].split()), document["Plan"]))
        block = [] if line.endswith(_BEGINS) else None
    return found


def findings(plans: list[Plan], *, rows: int) -> list[str]:
    """What read a table with a past as a whole, or at least so many of its rows; once each.

    What waits for people is counted as a whole: seldom, and for the metrics alone.
    """
    found = {}
    for plan in plans:
        for node in plan.nodes():
            table = node.get("Relation Name", "")
            if not _GROWING.match(table) or (table == "approvals" and "count(" in plan.statement):
                continue
            removed = node.get("Rows Removed by Filter", 0)
            removed += node.get("Rows Removed by Index Recheck", 0)
            read = (node.get("Actual Rows", 0) + removed) * node.get("Actual Loops", 1)
            whole = node["Node Type"] == "Seq Scan" and read > 0
            if whole or read >= rows:
                text = f"{node['Node Type']} of {table} reads {read:.0f} rows: {plan.statement}"
                found.setdefault((plan.statement, node["Node Type"], table), text)
    return list(found.values())
