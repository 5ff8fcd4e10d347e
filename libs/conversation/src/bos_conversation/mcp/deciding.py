"""Decisions about actions: shown whole to the person, and taken from the person's own reply."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mcp.types import ElicitResult, InputRequiredResult

from bos_conversation import Decision, approval_shown
from bos_conversation.mcp.persons import ask_person

if TYPE_CHECKING:
    from mcp.server.mcpserver import Context

    from bos.gateway.v1 import Approval
    from bos_client.client import BosClient

_PREFIX = "approval:"
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "decision": {
            "type": "string",
            "title": "Decision",
            "description": "approve: exactly the above is done; deny: nothing is done",
            "enum": ["approve", "deny"],
        },
        "instructions": {
            "type": "string",
            "title": "Instructions",
            "description": "What to do in its place; with these nothing is done, and another"
            " proposal is made. Leave empty otherwise.",
            "maxLength": 4000,
        },
    },
    "required": ["decision"],
}


@dataclass(frozen=True, slots=True)
class Undecided:
    """No decision was made; the action still waits."""

    asked: bool
    """Whether the person was asked."""


async def decide_by_person(
    context: Context[Any, Any], approval: Approval
) -> Decision | InputRequiredResult | Undecided:
    """What the person decides about exactly what is shown.

    Raises:
        FailedPrecondition: the action cannot be shown whole.
    """
    shown = approval_shown(approval)
    # A reply counts for the text that it was given to, whichever replica showed it.
    digest = hashlib.sha256(shown.encode()).hexdigest()[:32]
    key = f"{_PREFIX}{approval.approval_id}:{digest}"
    reply = await ask_person(context, key, shown, _SCHEMA)
    if isinstance(reply, InputRequiredResult):
        return reply
    return Undecided(asked=False) if reply is None else _decision(reply)


def approvals_replied(context: Context[Any, Any]) -> list[str]:
    """Ids of the approvals to which the client sends replies."""
    keys = context.input_responses or {}
    return [key.split(":")[1] for key in keys if key.startswith(_PREFIX) and key.count(":") == 2]


async def carry_out(bos: BosClient, approval_id: str, decision: Decision) -> Approval:
    """Tell the gateway.

    Raises:
        BosError: the caller may not decide so, or it is too late.
    """
    if decision.approved:
        return await bos.approve(approval_id, decision.instructions)
    return await bos.deny(approval_id)


def _decision(reply: ElicitResult) -> Decision | Undecided:
    if reply.action == "decline":
        return Decision(approved=False)
    content = reply.content or {}
    word, instructions = content.get("decision"), content.get("instructions")
    if reply.action != "accept" or word not in ("approve", "deny"):
        return Undecided(asked=True)
    text = instructions.strip() if isinstance(instructions, str) else ""
    # Instructions with a refusal are what to do in its place: another proposal, and nothing done.
    return Decision(approved=word == "approve" or bool(text), instructions=text)
