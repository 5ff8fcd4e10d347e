"""Task of a step, and its toolbox: permission, approval and trace of every tool call."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opentelemetry import trace as otel
from opentelemetry.trace import Tracer

from bos.agent.v1 import AgentInput, PerformedAction, ProposedAction, SideEffectClass, Tool
from bos.common.v1 import Artefact, Value, ValueMap
from bos_agentkit.actions import action_digest
from bos_agentkit.effective_task import effective_task, is_overridden
from bos_agentkit.failures import AgentFailure, ApprovalNeeded
from bos_agentkit.files import Files
from bos_agentkit.input_files import InputFiles
from bos_agentkit.prompts import Section, format_conversation
from bos_agentkit.tools import REPEATABLE, AgentTool, InjectedParameter, plain
from bos_agentkit.trace import TraceRecorder
from bos_agentkit.usage import UsageMeter
from bos_chassis.tracing import attributes as names
from bos_chassis.values import MAX_DEPTH, from_value, from_value_map, to_value, to_value_map
from bos_errors import (
    BosError,
    Cancelled,
    DeadlineExceeded,
    Internal,
    InvalidArgument,
    PermissionDenied,
    Unavailable,
)
from bos_llm import TokenBudget
from bos_llm.prompts import NOTHING, format_clarifications, format_user_profile

DEFAULT_TIMEOUT_S = 30.0

# After these errors the action may have been performed; after any other Bos error it was not.
_OUTCOME_UNKNOWN = (Cancelled, DeadlineExceeded, Internal, Unavailable)


class AgentTask:
    """Input of one step, its tools and deadline, and what is recorded: usage, trace, files.

    Args:
        input: As sent by the gateway.
        agent: Canonical name of the agent, for the trace.
        tools: All tools of the agent; the plan's list decides which may be called.
        timeout_s: Time limit of this attempt.
        tracer: For spans of tool calls.
    """

    def __init__(
        self,
        input: AgentInput,
        *,
        agent: str = "",
        tools: Sequence[AgentTool] = (),
        timeout_s: float = DEFAULT_TIMEOUT_S,
        tracer: Tracer | None = None,
    ) -> None:
        self.input = input
        self.agent = agent or input.agent_name
        self.effective_task = effective_task(input)
        """Task after the approver's instructions; use this in prompts, never ``input.task``."""
        self.overridden = is_overridden(input)
        """Whether the approver replaced the task."""
        self.trace = TraceRecorder(self.agent)
        self.usage = UsageMeter()
        bound = input.token_budget if input.HasField("token_budget") else None
        self.budget = TokenBudget(bound)
        """Budget and usage of this attempt's model calls; also counts where there is no limit."""
        self.tainted = input.tainted
        """Whether the step has read untrusted content (web, mail, documents)."""
        self.tools = Toolbox(tools, self, tracer)
        self.files = Files()
        """Files attached to the result."""
        self.input_files = InputFiles(input.files)
        """Files of earlier steps, for an agent whose card says ``takes_files``."""
        self.timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s
        self._partial = ValueMap()

    @property
    def profile(self) -> str:
        """User profile as prompts show it."""
        return format_user_profile(self.input.long_term_memory)

    @property
    def conversation(self) -> str:
        """Recent messages of the conversation as prompts show them."""
        return format_conversation(self.input.conversation_history)

    @property
    def user_sections(self) -> list[Section]:
        """Prompt sections of what is known of the user and of the conversation so far.

        Every prompt of an agent has them, or passes ``profile`` and ``conversation`` to
        ``prompt_sections``. A prompt with them needs ``UNTRUSTED_NOTICE``.
        """
        sections = (("About the user", self.profile), ("Conversation so far", self.conversation))
        return [(heading, body) for heading, body in sections if body != NOTHING]

    @property
    def settled(self) -> str:
        """Clarifications by the user as prompts show them."""
        return format_clarifications(self.input.clarifications)

    @property
    def dependencies(self) -> dict[str, dict[str, Any]]:
        """Data of the steps that this one depends on, by step id.

        Raises:
            InvalidArgument: a value is invalid or nested too deeply; names the step.
        """
        outputs = self.input.dependency_outputs
        return {step: _read("dependency_outputs", step, outputs[step]) for step in sorted(outputs)}

    @property
    def arguments(self) -> dict[str, Any]:
        """The plan's input for this step, references resolved.

        Raises:
            InvalidArgument: a value is invalid or nested too deeply; names the argument.
        """
        given = self.input.sub_task_input
        return {name: _read("sub_task_input", name, given[name]) for name in sorted(given)}

    @property
    def partial_data(self) -> ValueMap | None:
        """Data recorded by :meth:`partial`; None if nothing."""
        return self._partial if self._partial.fields else None

    def remaining_s(self) -> float:
        """Seconds left for this attempt, at least 0."""
        return max(0.0, self._deadline - time.monotonic())

    def partial(self, **data: Any) -> None:
        """Record partial data, which the result keeps if the step fails or exceeds its time limit.

        Raises:
            TypeError, ValueError: from ``to_value``.
        """
        for name, value in data.items():
            self._partial.fields[name].CopyFrom(to_value(value))

    def attach_file(self, name: str, media_type: str, content: bytes) -> Artefact:
        """Attach a file, such as a figure, to the result; the gateway stores and lists it.

        Files of a result that awaits approval or clarification are dropped. Returns the reference
        under which a chart of the result may name the file; the gateway takes out those of files
        that it could not keep.

        Args:
            name: File name to show, without a folder.
            media_type: Such as "image/png".
            content: At most 4 MiB, and 6 MiB with all other files of the step, of which there may
                be 16.

        Raises:
            ValueError: the name, the media type or a size is invalid.
        """
        return self.files.add(name, media_type, content)

    def taint(self) -> None:
        """Mark the step as tainted by untrusted content: every side effect now needs approval."""
        self.tainted = True


@dataclass(frozen=True, slots=True)
class ToolContext(InjectedParameter):
    """Step that calls a tool; a parameter of this type is injected and no argument of the tool."""

    task: AgentTask
    """User profile, time left, usage, secrets, trace."""
    idempotency_key: str
    """Idempotency key for destinations: the same for every attempt at the same action."""


class Toolbox:
    """Tools that the plan allows for this step.

    An empty list in the input allows every tool that needs no approval. A protected tool runs only
    if the input carries the approval of exactly this call, once per approval. On a tainted step
    the same holds for every tool with a side effect.
    """

    def __init__(
        self, tools: Sequence[AgentTool], task: AgentTask, tracer: otel.Tracer | None = None
    ) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._task = task
        self._listed = frozenset(task.input.tools)
        self._tracer = tracer or otel.NoOpTracer()
        self._approved = list(task.input.approval_context.approved_actions)
        self._action_ids: Counter[str] = Counter()
        self._performed: dict[str, PerformedAction] = {}
        self.irreversible_dispatched = False
        """Whether an effect happened that another attempt would repeat."""

    @property
    def allowed(self) -> tuple[Tool, ...]:
        """Cards of the allowed tools, for prompts."""
        return tuple(tool.card for tool in self._tools.values() if self._permits(tool))

    @property
    def performed(self) -> tuple[PerformedAction, ...]:
        """Approved actions started so far."""
        return tuple(self._performed.values())

    async def call(self, tool: str, /, **arguments: Any) -> Any:
        """Call a tool by name and return what it returns.

        Raises:
            PermissionDenied: the plan does not allow the tool for this step.
            InvalidArgument: the arguments do not match its schema.
            ApprovalNeeded: this call needs approval first.
        """
        found = self._find(tool)
        checked = found.check(arguments)
        if not self._needs_approval(found):
            # Only calls with side effects need an idempotency key at their destination.
            action_id = self._action_id(found, checked) if found.has_side_effect else found.name
            return await self._run(found, checked, action_id, repeatable=found.is_repeatable)
        action = self._action(found, checked)
        approved = self._take_approved(action.digest)
        if approved is None:
            self._task.trace.decision(f"{tool} waits for approval", digest=action.digest)
            raise ApprovalNeeded(action)
        return await self._perform(approved, found, checked)

    def propose(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        summary: str = "",
        side_effect: SideEffectClass | None = None,
    ) -> ProposedAction:
        """Build the action that ``call`` would need approval for, without calling the tool.

        Args:
            tool: Name of the tool.
            arguments: Its arguments.
            summary: What will happen, for the approver; empty: the tool's own.
            side_effect: Class of exactly this call, where its arguments decide it, such as
                IDEMPOTENT at a destination that recognises ``ToolContext.idempotency_key``; None:
                the tool's.

        Raises:
            PermissionDenied, InvalidArgument: as :meth:`call`.
        """
        found = self._find(tool)
        action = self._action(found, found.check(arguments), summary)
        if side_effect is not None:
            action.side_effect = side_effect
        return action

    async def perform(self, action: ProposedAction) -> Any:
        """Perform one approved action exactly and at most once; returns the tool's result.

        Raises:
            PermissionDenied: the action was not approved for this step, was changed since, or was
                performed already.
        """
        found = self._find(action.tool)
        checked = found.check(from_value_map(action.arguments))
        # Digest of the arguments after conversion and defaults: a tool whose code changed since
        # the approval must not do something else now.
        approved = self._take_approved(_digest(found, checked))
        if approved is None:
            raise PermissionDenied(
                f"This call of {action.tool} is not one that was approved, so it was not made.",
                reason="ACTION_NOT_APPROVED",
            )
        return await self._perform(approved, found, checked)

    def _take_approved(self, digest: str) -> ProposedAction | None:
        """Take one approval of the call with ``digest``; it cannot be used again."""
        for index, action in enumerate(self._approved):
            if action.digest == digest:
                return self._approved.pop(index)
        return None

    def _find(self, name: str) -> AgentTool:
        found = self._tools.get(name)
        if found is None or not self._permits(found):
            raise PermissionDenied(
                f"The plan does not allow the tool {name} for this step.", reason="TOOL_NOT_ALLOWED"
            )
        return found

    def _permits(self, tool: AgentTool) -> bool:
        if self._listed:
            return tool.name in self._listed
        return not tool.card.requires_approval

    def _needs_approval(self, tool: AgentTool) -> bool:
        return tool.card.requires_approval or (tool.has_side_effect and self._task.tainted)

    def _action(
        self, tool: AgentTool, checked: Mapping[str, Any], summary: str = ""
    ) -> ProposedAction:
        return ProposedAction(
            action_id=self._action_id(tool, checked),
            tool=tool.name,
            arguments=_value_map(tool, checked),
            digest=_digest(tool, checked),
            summary=summary or tool.summarise(checked),
            side_effect=tool.card.side_effect,
            tainted=self._task.tainted,
        )

    def _action_id(self, tool: AgentTool, checked: Mapping[str, Any]) -> str:
        """Action id: unique within the step, stable across its attempts."""
        stem = f"{tool.name}-{_digest(tool, checked).removeprefix('sha256:')[:12]}"
        self._action_ids[stem] += 1
        count = self._action_ids[stem]
        return stem if count == 1 else f"{stem}-{count}"

    async def _perform(
        self, action: ProposedAction, tool: AgentTool, checked: Mapping[str, Any]
    ) -> Any:
        # Unknown until the tool has answered, also where the step is cancelled meanwhile.
        self._performed[action.action_id] = PerformedAction(action=action, outcome_unknown=True)
        try:
            result = await self._run(
                tool,
                checked,
                action.action_id,
                repeatable=tool.is_repeatable or action.side_effect in REPEATABLE,
            )
        except BosError as error:
            if not _is_outcome_unknown(error):
                del self._performed[action.action_id]
            raise
        self._performed[action.action_id] = PerformedAction(
            action=action, result=to_value_map(result_fields(result))
        )
        return result

    async def _run(
        self, tool: AgentTool, checked: Mapping[str, Any], action_id: str, *, repeatable: bool
    ) -> Any:
        step_key = self._task.input.metadata.step_key
        context = ToolContext(self._task, idempotency_key=f"{step_key}/{action_id}")
        if not repeatable:
            self.irreversible_dispatched = True
        started = time.perf_counter()
        failure = ""
        with self._tracer.start_as_current_span(
            f"{names.EXECUTE_TOOL} {tool.name}",
            attributes={
                names.GEN_AI_OPERATION_NAME: names.EXECUTE_TOOL,
                names.GEN_AI_TOOL_NAME: tool.name,
            },
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                return await tool.invoke(checked, context)
            except BaseException as error:
                failure = type(error).__name__
                span.set_attribute(names.ERROR_TYPE, failure)
                span.set_status(otel.StatusCode.ERROR)
                raise
            finally:
                self._task.trace.tool(
                    tool.name,
                    arguments={name: plain(value) for name, value in checked.items()},
                    duration_ms=round((time.perf_counter() - started) * 1000, 1),
                    **({"failed": failure} if failure else {}),
                )


def _is_outcome_unknown(error: BosError) -> bool:
    if isinstance(error, AgentFailure):
        return error.outcome_unknown
    return isinstance(error, _OUTCOME_UNKNOWN)


def _read(field: str, name: str, value: Value | ValueMap) -> Any:
    """Python form of one input, convertible back to a typed value."""
    try:
        read = from_value_map(value) if isinstance(value, ValueMap) else from_value(value)
        if isinstance(value, Value):
            to_value(read)
        elif _depth(read) > MAX_DEPTH:
            raise ValueError("too deep")
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise InvalidArgument.field(
            f"input.{field}.{name}",
            "every number must be one that can be computed with, every date one of the calendar, "
            f"and lists and maps be nested at most {MAX_DEPTH} deep",
        ) from error
    return read


def _depth(data: Any) -> int:
    """Nesting depth of lists and maps in ``data``, the outermost not counted."""
    items = data.values() if isinstance(data, dict) else data
    return max(
        (1 + _depth(item) for item in items if isinstance(item, dict | list)),
        default=0,
    )


def result_fields(result: Any) -> dict[str, Any]:
    """A tool's result as named fields; anything other than a map becomes the field ``result``."""
    fields = plain(result)
    return fields if isinstance(fields, dict) else {"result": fields}


def _value_map(tool: AgentTool, checked: Mapping[str, Any]) -> Any:
    try:
        return to_value_map({name: plain(value) for name, value in checked.items()})
    except (TypeError, ValueError) as error:
        raise InvalidArgument.field(tool.name, f"an argument cannot be recorded: {error}") from None


def _digest(tool: AgentTool, checked: Mapping[str, Any]) -> str:
    return action_digest(tool.name, _value_map(tool, checked))
