"""Calls of one step: what was called, what came back, and how it is put in words."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from bos.common.v1 import Source, SourceType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bos.common.v1 import Table
    from bos_agentkit import AgentFailure
    from bos_mcp.results import ToolResult
    from bos_mcp.settings import McpServer

_MAX_PLAIN = 2_000
_MAX_EXCERPT = 300
_MAX_SHOWN_ROWS = 50


@dataclass(frozen=True, slots=True)
class MadeCall:
    """One call: its result, or its failure."""

    tool: str
    arguments: Mapping[str, Any]
    result: ToolResult | None = None
    failure: AgentFailure | None = None
    problem: str = ""
    """Why the call was not made."""

    @property
    def shown(self) -> str:
        """The result as prompts show it."""
        if self.result is None:
            return f"failed: {self.failure.message if self.failure else self.problem}"
        return result_text(self.result)


def result_text(result: ToolResult) -> str:
    """A result as text: its rows or JSON, else its own text; names of files."""
    if result.rows is not None:
        text = f"{len(result.rows)} rows: {_json(result.rows[:_MAX_SHOWN_ROWS])}"
    elif result.structured is not None and not result.text:
        text = _json(result.structured)
    else:
        text = result.text or "no content"
    files = f"\nFiles: {', '.join(result.files)}" if result.files else ""
    more = "\nNot all of it is here." if result.truncated else ""
    return f"{text}{files}{more}"


def plain_answer(made: Sequence[MadeCall]) -> str:
    """The last result, without a model's words."""
    result = last_result(made)
    if result is None:
        return ""
    if result.rows is not None:
        count = len(result.rows)
        return f"{result.tool} returned {'one row' if count == 1 else f'{count} rows'}."
    text = result_text(result)
    return text if len(text) <= _MAX_PLAIN else f"{text[:_MAX_PLAIN]}…"


def last_result(made: Sequence[MadeCall]) -> ToolResult | None:
    """The result of the last call that has one."""
    return next((call.result for call in reversed(made) if call.result is not None), None)


def outcome(made: Sequence[MadeCall]) -> tuple[dict[str, Any], Table | None]:
    """Data and table of a step: those of its last result, and the calls."""
    result = last_result(made)
    if result is None:
        return {}, None
    calls = [{"tool": call.tool, "arguments": dict(call.arguments)} for call in made if call.result]
    return {"tool": result.tool, **result.data, "calls": calls}, result.table


def sources_of(name: str, server: McpServer, made: Sequence[MadeCall]) -> list[Source]:
    """The server as a source, once for each call with a result."""
    return [
        Source(
            type=SourceType.SOURCE_TYPE_API,
            title=f"{name}: {call.tool}",
            uri=server.where if server.url else "",
            excerpt=result_text(call.result)[:_MAX_EXCERPT],
            reference=f"{call.tool}({_json(dict(call.arguments))[:_MAX_EXCERPT]})",
        )
        for call in made
        if call.result is not None
    ]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else str(value)
