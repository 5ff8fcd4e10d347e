"""Kinds of users' connections that steps of an agent are given: those it asks for and may have."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from bos.agent.v1 import AgentCard

    Kinds = Mapping[str, Sequence[str]]
    """Kinds of connections by the name of an agent; agents that are not named get none."""

_KIND: Final = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)?")


def granted_kinds(card: AgentCard | None, agent: str, allowed: Kinds) -> list[str]:
    """Kinds that the card names and the operator allows the agent."""
    return sorted(set(card.connection_kinds if card else ()) & set(allowed.get(agent, ())))


def refused_kinds(card: AgentCard, agent: str, allowed: Kinds) -> list[str]:
    """Kinds that the card names and the operator does not allow the agent."""
    return sorted(set(card.connection_kinds) - set(allowed.get(agent, ())))


def connections_problem(allowed: Kinds, agents: Collection[str]) -> str | None:
    """Why the setting cannot be used; None if it can."""
    where = "BOS_GATEWAY_AGENT_CONNECTIONS"
    if unknown := sorted(set(allowed) - set(agents)):
        return (
            f"{where} names {', '.join(unknown)}, which BOS_GATEWAY_AGENT_TARGETS does not; "
            "correct the name"
        )
    for agent, kinds in sorted(allowed.items()):
        for kind in kinds:
            if not _KIND.fullmatch(kind):
                return f"{where} must list kinds such as mail.imap for {agent}, not {kind!r}"
    return None
