"""The A2A agent: a task in one message to a remote agent, sent or proposed; its answer taken over.

::

    it waits for a reply | given message | model writes one
        -> reads: sent -> answer | question to the user
        '-> else: proposed; once approved, sent once -> ...
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from a2a.types import a2a_pb2 as a2a

from bos.common.v1 import ClarifyingQuestion
from bos_a2a import prompts
from bos_a2a.card import a2a_card
from bos_a2a.remote.connection import Connection
from bos_a2a.remote.tasks import Outgoing, RemoteTask
from bos_a2a.replies import AgentMessage
from bos_a2a.results import AgentAnswer, answer_of, question_of, shown_answer, sources_of
from bos_a2a.tools import DEFINITION, MAX_MESSAGE_CHARS, SEND, TASK, SendMessage, changed
from bos_agentkit import (
    Agent,
    AgentFailure,
    awaiting_approval,
    needed_reply,
    needs_clarification,
    succeeded,
)
from bos_agentkit.foreign import CallFailed, plain_text
from bos_errors import AgentErrorType, InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bos.agent.v1 import AgentResult, ProposedAction
    from bos_a2a.remote.definition import Definition
    from bos_a2a.settings import A2aServer, A2aSettings
    from bos_agentkit import AgentTask, ToolContext
    from bos_chassis.telemetry import Telemetry
    from bos_llm import Model, ModelNotConfigured

_RESERVE_S = 0.5
_LOOK_S = 10.0
_IDS = uuid.UUID("5d4a1d0e-8f0b-5c0a-9b6e-6a1f5f6d2c31")
"""Name space of the ids of messages and contexts."""
_MAX_PROGRESS = 300
_MAX_REASON = 500


class A2aAgent(Agent):
    """Hands tasks to one remote agent; the card follows what that says of itself.

    Args:
        name: Name of the specialist.
        server: Settings of the remote agent.
        settings: Of the agent.
        telemetry: Of the agent.
        model: Writes messages; None: only those given by plans, and replies.
    """

    def __init__(
        self,
        name: str,
        server: A2aServer,
        settings: A2aSettings,
        telemetry: Telemetry,
        model: Model | None,
    ) -> None:
        self._name = name
        self._server = server
        self._model = model
        self.connection = Connection(name, server, settings, telemetry, self._take)
        self._take(self.connection.definition)

    def require_available(self) -> None:
        """Refuse while the remote agent is away.

        Raises:
            Unavailable: says why.
        """
        self.connection.require_ready()

    def _take(self, definition: Definition) -> None:
        """Show the agent as it describes itself now; steps in progress keep what they have."""
        tool = SendMessage(self._name, definition, reads=self._server.reads, send=self._send)
        self._tool = tool
        self.tools = (tool,)
        self.card = a2a_card(self._name, self._server, tool)

    async def execute(self, task: AgentTask) -> AgentResult:
        """Send the user's reply, the given message or one that the model writes, or propose it."""
        self.connection.require_ready()
        tool = self._tool
        waiting = await self._waiting(task)
        instructed = bool(task.input.approval_context.user_instructions.strip())
        if waiting and not instructed:
            # In the user's own words: what the agent asked may have one answer alone.
            reply = task.input.clarifications[-1].reply.strip()[:MAX_MESSAGE_CHARS]
            return await self._handed(task, tool, {"message": reply, TASK: waiting}, "")
        given = None if instructed else _given(task)
        if given is not None:
            return await self._handed(task, tool, {"message": given}, "")
        # The model goes by what the agent says of itself.
        task.taint()
        messages = prompts.message_messages(task, self._name, tool.definition)
        reply_of_model = await needed_reply(
            task, self._model, messages, AgentMessage, no_model=_no_model
        )
        text = reply_of_model.message.strip()
        if not text:
            why = " ".join((reply_of_model.failure_reason or reply_of_model.reason).split())
            raise AgentFailure(
                AgentErrorType.PLANNING_DECLINED,
                f"The remote agent {self._name} does not do this task. {why[:_MAX_REASON]}",
            )
        arguments = {"message": text, **({TASK: waiting} if waiting else {})}
        return await self._handed(task, tool, arguments, reply_of_model.reason)

    async def perform(self, task: AgentTask, actions: Sequence[ProposedAction]) -> AgentResult:
        """Send exactly the approved message, once, and answer from what comes back."""
        if len(actions) != 1:
            raise InvalidArgument.field("approval_context.approved_actions", "must be one message")
        self.connection.require_ready()
        return self._result(task, await task.tools.perform(actions[0]))

    async def _handed(
        self, task: AgentTask, tool: SendMessage, arguments: Mapping[str, Any], reason: str
    ) -> AgentResult:
        """Send a message to an agent that only reads; propose it to any other."""
        if tool.reads:
            task.trace.decision("Sends a message", message=arguments["message"], reason=reason)
            return self._result(task, await task.tools.call(SEND, **arguments))
        action = task.tools.propose(SEND, arguments)
        task.trace.decision("Proposed a message", digest=action.digest, reason=reason)
        return awaiting_approval(task, [action], answer=reason)

    def _result(self, task: AgentTask, answer: AgentAnswer) -> AgentResult:
        """Result of a step whose message was answered."""
        if answer.question:
            return needs_clarification(task, [ClarifyingQuestion(question=answer.question)])
        data = {**answer.data, "message": answer.message}
        if answer.links:
            data["links"] = answer.links
        return succeeded(
            task,
            answer=shown_answer(answer, self._name),
            table=answer.table,
            data=data,
            confidence=0.6 if answer.truncated else 0.8,
            sources=sources_of(answer, self._name, self._server),
        )

    async def _send(self, arguments: Mapping[str, Any], context: ToolContext) -> AgentAnswer:
        """Send a message; one that may change something only by the definition in force."""
        task = context.task
        if DEFINITION in arguments:
            await self._require_unchanged(task, arguments[DEFINITION])
        message = Outgoing(
            text=arguments["message"],
            message_id=str(uuid.uuid5(_IDS, context.idempotency_key)),
            context_id=self._context_id(task),
            task_id=arguments.get(TASK, ""),
            tainted=task.input.tainted,
            may_be_there=task.input.metadata.attempt > 1,
        )
        task.usage.api_call()
        task.taint()
        try:
            remote = await self.connection.send(
                message,
                timeout_s=self._seconds(task),
                on_progress=lambda said: task.trace.message(
                    "The remote agent says", text=plain_text(said, _MAX_PROGRESS)
                ),
            )
        except CallFailed as failure:
            raise self._failure(failure) from failure
        return self._answer(task, remote, message)

    def _answer(self, task: AgentTask, remote: RemoteTask, message: Outgoing) -> AgentAnswer:
        """The answer of a task that rests.

        Raises:
            AgentFailure: it did not end well.
        """
        self.connection.note_replied(message.context_id)
        if remote.state == a2a.TASK_STATE_INPUT_REQUIRED:
            self.connection.note_waiting(message.context_id, remote)
            question = question_of(remote, self._name)
            return AgentAnswer(message=message.text, task=remote.task_id, question=question)
        if remote.state == a2a.TASK_STATE_COMPLETED:
            return answer_of(task, remote, message.text, self._server)
        said = plain_text(remote.said_text, _MAX_REASON)
        raise self._ended_badly(remote.state, f" It says: “{said}”" if said else "")

    def _ended_badly(self, state: int, said: str) -> AgentFailure:
        name = self._name
        # What an agent did before it failed is not known; one that rejects a task begins none.
        unknown = not self._server.reads
        if state == a2a.TASK_STATE_REJECTED:
            kind, text, unknown = (
                AgentErrorType.REMOTE_AGENT_REJECTED,
                f"The remote agent {name} does not take the task.",
                False,
            )
        elif state == a2a.TASK_STATE_AUTH_REQUIRED:
            kind, text = (
                AgentErrorType.REMOTE_AGENT_UNAUTHORIZED,
                f"The remote agent {name} wants credentials for this task which Bos cannot give; "
                "set token, token_file or headers in BOS_A2A_SERVERS, or grant them at the agent.",
            )
        elif state == a2a.TASK_STATE_CANCELED:
            kind, text = (
                AgentErrorType.REMOTE_AGENT_FAILED,
                f"The remote agent {name} canceled the task.",
            )
        else:
            kind, text = (
                AgentErrorType.REMOTE_AGENT_FAILED,
                f"The remote agent {name} failed at the task.",
            )
        return AgentFailure(kind, text + said, {"agent": name}, outcome_unknown=unknown)

    def _failure(self, failure: CallFailed) -> AgentFailure:
        """Failure of a message without an outcome."""
        if failure.reached and not self._server.reads:
            return AgentFailure(
                AgentErrorType.OUTCOME_UNKNOWN,
                f"It is not known whether {self._name} did the task: the message was sent, and no "
                f"result came back. {failure.message}",
                {"agent": self._name},
                outcome_unknown=True,
            )
        return AgentFailure(
            AgentErrorType.TOOL_UNAVAILABLE,
            failure.message,
            {"agent": self._name},
            retryable=failure.retryable,
        )

    async def _require_unchanged(self, task: AgentTask, digest: str) -> None:
        """Refuse a message to an agent that describes itself otherwise than when it was shown.

        Raises:
            AgentFailure: it does, or cannot be looked at.
        """
        try:
            current = await self.connection.definition_now(
                timeout_s=min(self._server.connect_timeout_s, self._seconds(task))
            )
        except CallFailed as failure:
            raise self._failure(failure) from failure
        if current.digest != digest:
            raise changed(self._name)

    async def _waiting(self, task: AgentTask) -> str:
        """Id of the remote task whose question the user replied to; empty if there is none."""
        if not task.input.clarifications:
            return ""
        return await self.connection.waiting(
            self._context_id(task), timeout_s=min(_LOOK_S, self._seconds(task))
        )

    def _context_id(self, task: AgentTask) -> str:
        """Context of all messages for one question: that of the first run, in its replies too."""
        asked = task.input.clarifications
        run_id = asked[0].run_id if asked else task.input.metadata.run_id
        return str(uuid.uuid5(_IDS, f"{run_id}/{self._name}"))

    def _seconds(self, task: AgentTask) -> float:
        return min(self._server.call_timeout_s, max(0.0, task.remaining_s() - _RESERVE_S))


def _given(task: AgentTask) -> str | None:
    """The message that the step's own input gives; None if it does not.

    A plan cannot name a task of the remote agent: it may be another user's.
    """
    if task.input.tool_name != SEND:
        return None
    given = task.arguments
    text = given.get("message")
    if set(given) != {"message"} or not isinstance(text, str) or not text.strip():
        return None
    return text.strip() if len(text) <= MAX_MESSAGE_CHARS else None


def _no_model(_: ModelNotConfigured) -> AgentFailure:
    return AgentFailure(
        AgentErrorType.CONFIGURATION_ERROR,
        "Writing a message to a remote agent needs a language model, and none is configured. Set "
        "OPENAI_API_KEY, or OPENAI_BASE_URL and BOS_MODEL, or give the step its message.",
    )
