"""Canonical names of agents and tools from names as users and models write them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bos.agent.v1 import AgentCard

_SUFFIX = "_agent"


def canonical_name(name: str, cards: Mapping[str, AgentCard]) -> str | None:
    """Canonical name of the agent of ``cards`` that ``name`` denotes, or None.

    Case-insensitive, without surrounding space; ``rag_agent`` and "RAG agent" denote ``rag``, and
    an alias on a card its agent, unless several agents have it.
    """
    written = "_".join(name.lower().replace("-", " ").split())
    for candidate in (name.strip().lower(), written, written.removesuffix(_SUFFIX)):
        if candidate in cards:
            return candidate
    called = [
        canonical
        for canonical, card in cards.items()
        if written in (alias.lower() for alias in card.aliases)
    ]
    return called[0] if len(called) == 1 else None


def canonical_names(
    names: Iterable[str], cards: Mapping[str, AgentCard]
) -> tuple[list[str], list[str]]:
    """Split ``names`` into unique canonical names, in order, and names that match no agent."""
    found: dict[str, None] = {}
    unknown: dict[str, None] = {}
    for name in names:
        canonical = canonical_name(name, cards)
        if canonical is not None:
            found[canonical] = None
        elif name.strip():
            unknown[name.strip()] = None
    return list(found), list(unknown)


def canonical_tool(name: str, card: AgentCard | None) -> str:
    """Canonical name of the tool of ``card`` that ``name`` denotes; ``name`` itself if none.

    Regardless of case and underscores: ``FetchUrl`` denotes ``fetch_url``, unless several tools
    are written so.
    """
    tools = [tool.name for tool in card.tools] if card is not None else []
    if name in tools:
        return name
    called = [tool for tool in tools if _letters(tool) == _letters(name)]
    return called[0] if len(called) == 1 else name


def _letters(name: str) -> str:
    return name.strip().lower().replace("_", "").replace("-", "")
