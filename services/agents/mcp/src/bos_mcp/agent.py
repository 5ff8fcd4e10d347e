"""The MCP agent: tools of an outside server, chosen by the model, called or proposed.

::

    given call | model chooses -> reads: called, result fed back -> … -> answer
                               '-> may change something: proposed; once approved, called once
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bos_agentkit import (
    Agent,
    AgentFailure,
    awaiting_approval,
    needed_reply,
    optional_reply,
    succeeded,
)
from bos_agentkit.foreign import CallFailed
from bos_agentkit.tools import REPEATABLE
from bos_chassis.values import render_value
from bos_errors import (
    AgentErrorType,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    Unavailable,
)
from bos_llm import NoReply
from bos_llm.numbers.check import ungrounded_numbers
from bos_mcp import prompts
from bos_mcp.calls import MadeCall, last_result, outcome, plain_answer, sources_of
from bos_mcp.card import mcp_card
from bos_mcp.replies import NextCall, ResultSummary
from bos_mcp.results import ToolResult, error_text, result_of
from bos_mcp.server.catalogue import DEFINITION
from bos_mcp.server.connection import Connection
from bos_mcp.tools import ServerTool, changed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bos.agent.v1 import AgentResult, ProposedAction
    from bos_agentkit import AgentTask, ToolContext
    from bos_chassis.telemetry import Telemetry
    from bos_llm import Model, ModelNotConfigured
    from bos_mcp.server.catalogue import Catalogue, Definition
    from bos_mcp.settings import McpServer, McpSettings

_RESERVE_S = 0.5


class McpAgent(Agent):
    """Works with the tools of one MCP server; card and tools follow what the server lists.

    Args:
        name: Name of the specialist.
        server: Settings of the server.
        settings: Of the agent.
        telemetry: Of the agent.
        model: Chooses tools and words results; None: only calls given by plans.
    """

    def __init__(
        self,
        name: str,
        server: McpServer,
        settings: McpSettings,
        telemetry: Telemetry,
        model: Model | None,
    ) -> None:
        self._name = name
        self._server = server
        self._settings = settings
        self._model = model
        self._tools: dict[str, ServerTool] = {}
        self.connection = Connection(name, server, settings, telemetry, self._take)
        self._take(self.connection.catalogue)

    def require_available(self) -> None:
        """Refuse while the server is away.

        Raises:
            Unavailable: says why.
        """
        self.connection.require_ready()

    def _take(self, catalogue: Catalogue) -> None:
        """Offer the tools of a new listing; steps in progress keep theirs."""
        self._tools = {
            name: ServerTool(definition, self._call) for name, definition in catalogue.tools.items()
        }
        self.tools = tuple(self._tools.values())
        self.card = mcp_card(self._name, self._server, self.tools)

    async def execute(self, task: AgentTask) -> AgentResult:
        """Make the given call, or those that the model chooses; propose what may change."""
        self.connection.require_ready()
        tools = dict(self._tools)
        given = _given(task, tools)
        allowed = [tools[each.name] for each in task.tools.allowed if each.name in tools]
        if given is not None:
            return await self._given_call(task, allowed, tools[task.input.tool_name], given)
        if not allowed:
            raise AgentFailure(
                AgentErrorType.PLANNING_DECLINED,
                "The server offers none of the tools that the plan allows for this step.",
            )
        # The model goes by descriptions that the server wrote.
        task.taint()
        return await self._chosen(task, allowed)

    async def perform(self, task: AgentTask, actions: Sequence[ProposedAction]) -> AgentResult:
        """Make exactly the approved call, once, and answer from its result."""
        if len(actions) != 1:
            raise InvalidArgument.field("approval_context.approved_actions", "must be one call")
        action = actions[0]
        # An approved call outlasts a server that is away for a while.
        self.connection.require_ready()
        if action.tool not in self._tools:
            raise changed(action.tool)
        result = await task.tools.perform(action)
        return await self._worded(task, [MadeCall(action.tool, _shown_arguments(action), result)])

    async def _chosen(
        self, task: AgentTask, allowed: Sequence[ServerTool], *before: MadeCall
    ) -> AgentResult:
        """Calls that the model chooses, after those that were made ``before``."""
        made = list(before)
        while len(made) < self._server.max_calls:
            messages = prompts.next_messages(task, allowed, made)
            reply = await needed_reply(task, self._model, messages, NextCall, no_model=_no_model)
            if not reply.tool.strip():
                return self._finished(task, made, reply)
            name = reply.tool.strip()
            tool = next((each for each in allowed if name in _names(each)), None)
            if tool is None:
                made.append(MadeCall(name[:64], {}, problem="there is no such tool"))
                continue
            try:
                arguments = tool.check(_arguments(reply.arguments))
            except InvalidArgument as error:
                made.append(MadeCall(tool.name, {}, problem=error.message))
                continue
            arguments.pop(DEFINITION, None)
            if any(call.tool == tool.name and call.arguments == arguments for call in made):
                task.trace.decision("The same call was chosen again; not made", tool=tool.name)
                break
            if not _is_free(task, tool):
                return self._proposed(task, made, tool, arguments, reply.reason)
            made.append(await self._read(task, tool, arguments, reply.reason))
        _require_result(made)
        return await self._worded(task, made)

    async def _given_call(
        self,
        task: AgentTask,
        allowed: Sequence[ServerTool],
        tool: ServerTool,
        arguments: dict[str, Any],
    ) -> AgentResult:
        """Make or propose the call that the plan gives; after an error of it the model goes on."""
        if not _is_free(task, tool):
            return self._proposed(task, [], tool, arguments, "")
        call = await self._read(task, tool, arguments, "given by the plan")
        if call.failure is not None:
            try:
                return await self._chosen(task, allowed, call)
            except (AgentFailure, FailedPrecondition, Unavailable, Internal) as error:
                raise call.failure from error
        return await self._worded(task, [call])

    async def _read(
        self, task: AgentTask, tool: ServerTool, arguments: dict[str, Any], reason: str
    ) -> MadeCall:
        """Call a tool that only reads; an error that it reports is fed back to the model."""
        task.trace.decision("Chose a tool", tool=tool.name, arguments=arguments, reason=reason)
        try:
            result = await task.tools.call(tool.name, **arguments)
        except AgentFailure as failure:
            if failure.type != AgentErrorType.TOOL_ERROR:
                raise
            return MadeCall(tool.name, arguments, failure=failure)
        return MadeCall(tool.name, arguments, result)

    def _proposed(
        self,
        task: AgentTask,
        made: Sequence[MadeCall],
        tool: ServerTool,
        arguments: Mapping[str, Any],
        reason: str,
    ) -> AgentResult:
        """Propose a call that may change something."""
        action = task.tools.propose(tool.name, arguments)
        task.trace.decision("Proposed a call", tool=tool.name, digest=action.digest, reason=reason)
        data, _ = outcome(made)
        if data:
            task.partial(**data)
        asked = awaiting_approval(task, [action], answer=reason)
        asked.sources.extend(sources_of(self._name, self._server, made))
        return asked

    def _finished(self, task: AgentTask, made: Sequence[MadeCall], reply: NextCall) -> AgentResult:
        """The model's answer; the last result as it stands where it makes up numbers."""
        answer = reply.answer.strip()
        if last_result(made) is None:
            if made:
                _require_result(made)
            why = " ".join((reply.failure_reason or answer or reply.reason).split())[:500]
            raise AgentFailure(
                AgentErrorType.PLANNING_DECLINED, f"No tool of the server does this task. {why}"
            )
        return self._result(task, made, self._grounded(task, made, answer))

    async def _worded(self, task: AgentTask, made: Sequence[MadeCall]) -> AgentResult:
        """Result of the calls in the model's words; as it stands where the model fails."""
        data, _ = outcome(made)
        task.partial(**data)
        seconds = min(self._settings.summary_timeout_s, task.remaining_s() * 0.8)
        try:
            summary = await optional_reply(
                task,
                self._model,
                lambda: prompts.summary_messages(task, made),
                ResultSummary,
                within_s=seconds,
            )
        except NoReply as failure:
            task.trace.message("Stating the result plainly", error=failure.error_type)
            return self._result(task, made, plain_answer(made))
        return self._result(task, made, self._grounded(task, made, summary.answer.strip()))

    def _grounded(self, task: AgentTask, made: Sequence[MadeCall], answer: str) -> str:
        known: list[Any] = [call.shown for call in made]
        known += [dict(call.arguments) for call in made]
        known += [task.effective_task, task.input.question, task.arguments]
        strange = ungrounded_numbers(answer, known)
        if strange or not answer:
            task.trace.message("The model's words hold numbers of no result", numbers=strange)
            return plain_answer(made)
        return answer

    def _result(self, task: AgentTask, made: Sequence[MadeCall], answer: str) -> AgentResult:
        data, table = outcome(made)
        result = last_result(made)
        return succeeded(
            task,
            answer=answer,
            table=table,
            data=data,
            confidence=0.6 if result is not None and result.truncated else 0.8,
            sources=sources_of(self._name, self._server, made),
        )

    async def _call(
        self, definition: Definition, arguments: Mapping[str, Any], context: ToolContext
    ) -> ToolResult:
        """Make one call; one that may change something only by the definition in force."""
        task = context.task
        if not definition.reads:
            await self._require_unchanged(task, definition)
        task.usage.api_call()
        try:
            result = await self.connection.call(
                definition.original, arguments, timeout_s=self._seconds(task)
            )
        except CallFailed as failure:
            raise _failure(definition, failure) from failure
        task.taint()
        if result.is_error:
            raise _tool_error(definition, error_text(result))
        return result_of(task, definition.name, result, self._server)

    async def _require_unchanged(self, task: AgentTask, definition: Definition) -> None:
        """Refuse a call whose tool the server describes otherwise than when it was shown.

        Raises:
            AgentFailure: it does, or does not offer it any more, or cannot say.
        """
        try:
            current = await self.connection.listed_now(timeout_s=self._seconds(task))
        except CallFailed as failure:
            raise _failure(definition, failure) from failure
        found = current.tools.get(definition.name)
        if found is None or found.digest != definition.digest:
            raise changed(definition.name)

    def _seconds(self, task: AgentTask) -> float:
        return min(self._server.call_timeout_s, max(0.0, task.remaining_s() - _RESERVE_S))


def _is_free(task: AgentTask, tool: ServerTool) -> bool:
    """Whether a call needs no approval.

    On a step that was tainted before it began, words of others may have it carry data out by the
    arguments of a tool that reaches further than its server.
    """
    return tool.definition.reads and not (task.input.tainted and tool.definition.open_world)


def _given(task: AgentTask, tools: Mapping[str, ServerTool]) -> dict[str, Any] | None:
    """Arguments of the call that the step's own input describes; None if it does not."""
    tool = tools.get(task.input.tool_name)
    if tool is None or task.input.approval_context.user_instructions.strip():
        return None
    try:
        checked = tool.check(task.arguments)
    except InvalidArgument:
        return None
    checked.pop(DEFINITION, None)
    return checked


def _names(tool: ServerTool) -> tuple[str, str]:
    return tool.name, tool.definition.original


def _arguments(text: str) -> dict[str, Any]:
    """Arguments that the model wrote.

    Raises:
        InvalidArgument: they are no JSON object.
    """
    try:
        given = json.loads(text.strip() or "{}")
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise InvalidArgument.field("arguments", "must be a JSON object")
    return given


def _shown_arguments(action: ProposedAction) -> dict[str, Any]:
    """Arguments of an action without the digest of the definition, as texts."""
    fields = action.arguments.fields
    return {name: render_value(fields[name]) for name in fields if name != DEFINITION}


def _require_result(made: Sequence[MadeCall]) -> None:
    """Fail a step none of whose calls has a result, by the last failure."""
    if last_result(made) is not None:
        return
    last = made[-1]
    if last.failure is not None:
        raise last.failure
    raise AgentFailure(
        AgentErrorType.PLANNING_DECLINED, f"No call could be made: {last.tool}: {last.problem}"
    )


def _failure(definition: Definition, failure: CallFailed) -> AgentFailure:
    """Failure of a step whose call has no result."""
    if failure.reached and not definition.reads:
        return AgentFailure(
            AgentErrorType.OUTCOME_UNKNOWN,
            f"It is not known whether {definition.name} took effect: it was called, and no result "
            f"came back. {failure.message}",
            {"tool": definition.name},
            retryable=failure.retryable and definition.side_effect in REPEATABLE,
            outcome_unknown=True,
        )
    return AgentFailure(
        AgentErrorType.TOOL_UNAVAILABLE,
        failure.message,
        {"tool": definition.name},
        retryable=failure.retryable,
    )


def _tool_error(definition: Definition, said: str) -> AgentFailure:
    """Failure that the tool itself reports; what it did before is not known."""
    return AgentFailure(
        AgentErrorType.TOOL_ERROR,
        f"The tool {definition.name} reports an error: {said or 'it does not say which'}",
        {"tool": definition.name},
        outcome_unknown=not definition.reads,
    )


def _no_model(_: ModelNotConfigured) -> AgentFailure:
    return AgentFailure(
        AgentErrorType.CONFIGURATION_ERROR,
        "Choosing a tool needs a language model, and none is configured. Set OPENAI_API_KEY, or "
        "OPENAI_BASE_URL and BOS_MODEL, or give the step a tool and its arguments.",
    )
