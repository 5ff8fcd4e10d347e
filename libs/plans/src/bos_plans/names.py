"""Canonical names of agents and tools from names as users and models write them. Pure.

One rule for all: case, spaces, hyphens and underscores do not count, all else does. An agent's or
tool's own name comes before an alias of another one, and a name that several share denotes none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bos.agent.v1 import AgentCard
from bos.planner.v1 import Plan

_SUFFIX = "agent"
_NO_AGENT = frozenset({"", "orchestrator"})
"""Role of steps that name their tool alone: the agent that has it takes them."""


def canonical_name(name: str, cards: Mapping[str, AgentCard]) -> str | None:
    """Canonical name of the agent of ``cards`` that ``name`` denotes, or None.

    ``rag_agent`` and "RAG agent" denote ``rag``, and an alias on a card its agent.
    """
    exact = name.strip().lower()
    if exact in cards:
        return exact
    written = _letters(name)
    for form in (written, written.removesuffix(_SUFFIX)):
        if called := [canonical for canonical in cards if _letters(canonical) == form]:
            return _only(called)
    return _only(name for name, card in cards.items() if written in map(_letters, card.aliases))


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

    ``FetchUrl`` denotes ``fetch_url``, and an alias of a tool on the card that tool.
    """
    return (_tool(name, card) if card is not None else None) or name


def canonical_step(agent: str, tool: str, cards: Mapping[str, AgentCard]) -> tuple[str, str]:
    """Canonical names of a step's agent and tool; what denotes nothing stays as it is.

    * A tool in the place of the agent, and a tool of the role "Orchestrator", denote the one agent
      that has the tool.
    * A name of the agent in the place of the tool leaves the choice of the tool to the agent.
    """
    named = canonical_name(agent, cards)
    if named is None:
        alone = _letters(agent) in _NO_AGENT
        wanted = tool if alone else agent
        named = canonical_name(wanted, cards) or _only(
            name for name, card in cards.items() if _tool(wanted, card)
        )
        if named is None:
            return agent, tool
        tool = tool or wanted
    called = _tool(tool, cards[named])
    if called is None and canonical_name(tool, cards) == named:
        called = ""
    return named, tool if called is None else called


def with_canonical_names(plan: Plan, cards: Mapping[str, AgentCard]) -> Plan:
    """``plan`` with canonical names of agents and tools, as plans are validated and stored."""
    result = Plan()
    result.CopyFrom(plan)
    for step in result.steps:
        step.agent, step.tool_name = canonical_step(step.agent, step.tool_name, cards)
        tools = dict.fromkeys(canonical_tool(tool, cards.get(step.agent)) for tool in step.tools)
        del step.tools[:]
        step.tools.extend(tools)
    return result


def shared_names(cards: Iterable[AgentCard]) -> dict[str, list[str]]:
    """Names and aliases that several cards claim, each with the names of their agents.

    Names of tools may be shared: they are looked for within one agent. Aliases of tools may not, as
    they denote agents too.
    """
    claims: dict[str, list[str]] = {}
    for card in cards:
        aliases = [alias for tool in card.tools for alias in tool.aliases]
        for name in dict.fromkeys(map(_letters, (card.name, *card.aliases, *aliases))):
            claims.setdefault(name, []).append(card.name)
    return {name: sorted(agents) for name, agents in claims.items() if len(agents) > 1}


def _tool(name: str, card: AgentCard) -> str | None:
    """Canonical name of the one tool of ``card`` that ``name`` denotes, or None."""
    tools = [tool.name for tool in card.tools]
    if name in tools:
        return name
    written = _letters(name)
    if called := [tool for tool in tools if _letters(tool) == written]:
        return _only(called)
    return _only(tool.name for tool in card.tools if written in map(_letters, tool.aliases))


def _only(found: Iterable[str]) -> str | None:
    names = list(found)
    return names[0] if len(names) == 1 else None


def _letters(name: str) -> str:
    return "".join(name.lower().replace("_", " ").replace("-", " ").split())
