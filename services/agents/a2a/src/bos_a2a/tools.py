"""The one tool of the agent: a message to the remote agent, tied to a digest of what that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf import json_format, struct_pb2
from pydantic import BaseModel, ConfigDict, Field

from bos.agent.v1 import SideEffectClass, Tool
from bos_agentkit import AgentFailure, AgentTool
from bos_errors import AgentErrorType

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from bos_a2a.remote.definition import Definition
    from bos_a2a.results import AgentAnswer
    from bos_agentkit import ToolContext
    from bos_agentkit.tools import InjectedParameter

    Send = Callable[[Mapping[str, Any], ToolContext], Awaitable[AgentAnswer]]

SEND = "send_message"
DEFINITION = "agent_definition"
"""Argument of a proposed message that holds the digest of what the agent says of itself."""
TASK = "task"
"""Argument that names the task of the remote agent that the message replies to."""
MAX_MESSAGE_CHARS = 50_000
_SCHEMA = {
    "type": "object",
    "properties": {"message": {"type": "string", "description": "The message to the agent"}},
    "required": ["message"],
}


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid")

    message: str = Field(min_length=1, max_length=MAX_MESSAGE_CHARS, pattern=r"\S")
    task: str = Field(default="", max_length=256)
    agent_definition: str = Field(default="", max_length=100)


class SendMessage(AgentTool):
    """Sends one message and returns what the agent answers.

    What is proposed names the digest of the agent's definition, so that an approval holds for the
    agent as it described itself when the message was shown.

    Args:
        name: Name of the specialist.
        definition: What the remote agent says of itself.
        reads: Whether the operator says that it changes nothing.
        send: Sends it.
    """

    def __init__(self, name: str, definition: Definition, *, reads: bool, send: Send) -> None:
        self.definition = definition
        self.reads = reads
        self._name = name
        self._send = send
        super().__init__(_card(name, reads=reads), self._invoked, _Arguments, None, "")

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Validate arguments.

        Raises:
            AgentFailure: they were approved for another definition of the agent.
            InvalidArgument: names the invalid arguments.
        """
        checked = super().check(arguments)
        digest = checked.pop(DEFINITION) or self.definition.digest
        if digest != self.definition.digest:
            raise changed(self._name)
        if not checked[TASK]:
            del checked[TASK]
        return checked if self.reads else {**checked, DEFINITION: digest}

    def summarise(self, arguments: Mapping[str, Any]) -> str:
        """The message as it will be sent, for the approver."""
        replies = ", in reply to its question" if arguments.get(TASK) else ""
        return f"Tell {self._name}{replies}: “{arguments['message']}”"

    async def invoke(self, arguments: Mapping[str, Any], context: InjectedParameter) -> Any:
        """Send exactly this message."""
        return await self._invoked(arguments, context)

    async def _invoked(self, arguments: Mapping[str, Any], context: Any) -> AgentAnswer:
        return await self._send(arguments, context)


def changed(name: str) -> AgentFailure:
    """The failure of a message that was approved for an agent which describes itself otherwise."""
    return AgentFailure(
        AgentErrorType.TOOL_CHANGED,
        f"The remote agent {name} describes itself otherwise since the message was approved, so it "
        "was not sent. Ask again to see the message as it would be sent now.",
        retryable=False,
    )


def _card(name: str, *, reads: bool) -> Tool:
    none, irreversible = (
        SideEffectClass.SIDE_EFFECT_CLASS_NONE,
        SideEffectClass.SIDE_EFFECT_CLASS_IRREVERSIBLE,
    )
    return Tool(
        name=SEND,
        description=f"Hands a task to the remote agent {name} in one message, and returns what it "
        "answers.",
        input_schema=json_format.ParseDict(_SCHEMA, struct_pb2.Struct()),
        requires_approval=not reads,
        side_effect=none if reads else irreversible,
    )
