"""Audiences of run tokens: services that an agent's step may call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from bos.agent.v1 import AgentCard

    Audiences = Mapping[str, Sequence[str]]
    """Services by the name of an agent; ``*`` stands for every agent that is not named."""

MCP_DB: Final = "mcp_db"
SANDBOX: Final = "sandbox"
DOCUMENTS: Final = "documents"
FILE_TABLES: Final = "file_tables"
"""Tables of users' files, which the server of the files agent offers under a name of their own."""
DEFAULT: Final[Audiences] = {"*": (MCP_DB, SANDBOX)}
NEVER: Final = frozenset({"gateway", "identity", "memory", "planner", "composer", "rest", "bos"})
"""What acts for a whole run or for its user; a step has no business there."""
SERVICES: Final = NEVER | {MCP_DB, SANDBOX, DOCUMENTS, FILE_TABLES}
"""Names that no agent may have: its tokens would be theirs."""


def granted(card: AgentCard | None, agent: str, audiences: Audiences) -> list[str]:
    """Audiences of a token handed to ``agent``: the agent, then what it asks for and may."""
    asked = dict.fromkeys(card.downstream_audiences if card else ())
    return [agent, *(each for each in asked if each in allowed(agent, audiences))]


def refused(card: AgentCard, agent: str, audiences: Audiences) -> list[str]:
    """Audiences that the card asks for and does not get."""
    return sorted(set(card.downstream_audiences) - set(allowed(agent, audiences)))


def allowed(agent: str, audiences: Audiences) -> Sequence[str]:
    """Services that an agent may call."""
    return audiences.get(agent, audiences.get("*", ()))


def agents_problem(agents: Iterable[str]) -> str | None:
    """Problem of the agents' names; None if there is none."""
    taken = sorted(name for name in agents if name.casefold() in SERVICES)
    if not taken:
        return None
    return (
        f"BOS_GATEWAY_AGENT_TARGETS names an agent like a service of Bos ({', '.join(taken)}); "
        "its run tokens would be good there. Give the agent another name"
    )


def audiences_problem(audiences: Audiences, agents: Collection[str]) -> str | None:
    """Why the setting cannot be used; None if it can."""
    where = "BOS_GATEWAY_AGENT_AUDIENCES"
    if unknown := sorted(set(audiences) - {"*", *agents}):
        return (
            f"{where} names {', '.join(unknown)}, which BOS_GATEWAY_AGENT_TARGETS does not; "
            "correct the name, or use *"
        )
    others = {agent.casefold() for agent in agents}
    for agent, services in sorted(audiences.items()):
        for service in services:
            if service.casefold() in NEVER:
                return (
                    f"{where} lets {agent} through to {service}, which no agent may call; remove it"
                )
            if service.casefold() in others:
                return f"{where} lets {agent} through to the agent {service}; remove it"
            if not service.strip() or service == "*":
                return f"{where} must list names of services for {agent}, not {service!r}"
    return None
