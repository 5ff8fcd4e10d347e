"""Agents and tools that a user may use: what is offered, and what is sent. Pure.

The cards that are frozen into a run are those that its asker may use, so no planner is offered any
other, and a plan that names another is none. Before a step is sent it is looked at once more, by
the settings of that moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bos.agent.v1 import AgentCard, ProposedAction
from bos.planner.v1 import Step
from bos_chassis.auth.access import Access
from bos_errors import PermissionDenied


def offered_card(card: AgentCard, access: Access) -> AgentCard | None:
    """The card with the tools that the caller may use; None if it may not use the agent.

    An agent that has tools and may use none of them can do nothing for the caller.
    """
    if not access.may_use_agent(card.name):
        return None
    tools = [tool for tool in card.tools if access.may_use_tool(card.name, tool.name)]
    if len(tools) == len(card.tools):
        return card
    if not tools:
        return None
    offered = AgentCard()
    offered.CopyFrom(card)
    del offered.tools[:]
    offered.tools.extend(tools)
    return offered


def offered_cards(cards: Sequence[AgentCard], access: Access) -> list[AgentCard]:
    """The cards of the agents that the caller may use.

    Raises:
        PermissionDenied: there are agents, and none for this caller. A plan made without any would
            look like a question that needs none.
    """
    offered = [found for card in cards if (found := offered_card(card, access)) is not None]
    if cards and not offered:
        raise PermissionDenied(
            "You may not use any of the agents. Ask an administrator for a group that may.",
            reason="NO_AGENT_ALLOWED",
        )
    return offered


def allowed_names(names: Iterable[str], access: Access) -> list[str]:
    """Those of ``names`` that are agents the caller may use."""
    return [name for name in names if access.may_use_agent(name)]


def step_problem(
    step: Step, access: Access, performing: Iterable[ProposedAction] = ()
) -> str | None:
    """Why a step must not be sent, in words; None if it may.

    Args:
        step: Of the plan.
        access: What its asker may use now.
        performing: Approved actions that it is sent to perform.
    """
    if not access.may_use_agent(step.agent):
        return (
            f'You may not use the agent "{step.agent}". Ask an administrator for a group that may.'
        )
    tools = {*step.tools, *filter(None, (step.tool_name,)), *(each.tool for each in performing)}
    if barred := sorted(tool for tool in tools if not access.may_use_tool(step.agent, tool)):
        names = ", ".join(f"{step.agent}.{tool}" for tool in barred)
        return f"You may not use these tools: {names}. Ask an administrator for a group that may."
    return None


def listed_tools(step: Step, card: AgentCard | None, access: Access) -> Sequence[str]:
    """The tools that an agent is sent as allowed for a step; none stands for its own choice.

    That choice is every tool that needs no approval, so a user who may not use all is sent a
    list. If only protected ones are left these are named: each use of them is asked about anyway.
    """
    if step.tools or card is None or not card.tools or access.has_every_tool(step.agent):
        return step.tools
    allowed = [tool for tool in card.tools if access.may_use_tool(step.agent, tool.name)]
    return [tool.name for tool in allowed if not tool.requires_approval] or [
        tool.name for tool in allowed
    ]
