"""Card of a specialist that is a remote agent."""

from __future__ import annotations

from bos.agent.v1 import AgentCard
from bos_a2a.settings import A2aServer
from bos_a2a.tools import SendMessage
from bos_agentkit import agent_card

_RESERVE_S = 60.0
_SELECTION_GROUP = 1


def a2a_card(name: str, server: A2aServer, tool: SendMessage) -> AgentCard:
    """Card of the remote agent ``name``: the operator's words, and its own, quoted.

    Keywords are the operator's alone: an agent that chose them could draw questions to itself.
    """
    definition = tool.definition
    about = server.description or f"Hands tasks to the remote agent {name}."
    said = definition.description
    return agent_card(
        name,
        f"{about} As it describes itself: “{said}”" if said else about,
        capabilities=[f"“{skill}”" for skill in definition.skills],
        typical_use_cases=definition.examples or [f"Use {name.replace('_', ' ')} for this"],
        keywords=[word.lower() for word in server.keywords] or (name.replace("_", " "),),
        selection_group=_SELECTION_GROUP,
        tools=[tool],
        output_fields={
            "text": "text of the result",
            "structured": "JSON of the result, if it has any",
            "rows": "rows of a list as maps from field to value",
            "links": "files that the agent names by their addresses",
            "message": "the message that the agent was sent",
            "files": "names of files that came with the result",
            "truncated": "whether there was more",
        },
        default_timeout_s=server.call_timeout_s + _RESERVE_S,
        max_retries=1,
        latency_budget_s=20,
        version="0.1.0",
    )
