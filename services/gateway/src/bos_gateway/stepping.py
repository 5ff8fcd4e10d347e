"""The effect of running a step: attempts at one agent until a result counts."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING
from uuid import UUID

import grpc

from bos.agent.v1 import (
    AGENT_EXECUTION_STATUS_AWAITING_APPROVAL,
    AGENT_EXECUTION_STATUS_FAILED,
    AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION,
    AGENT_EXECUTION_STATUS_SKIPPED,
    AGENT_EXECUTION_STATUS_SUCCEEDED,
    AgentResult,
    ExecuteRequest,
)
from bos.common.v1 import TRACE_EVENT_TYPE_MESSAGE, TraceEvent, Usage
from bos.runlog.v1 import ApprovalRequested, LogEvent, StepDispatched, StepFinished, StepProgressed
from bos_artefacts import Owner
from bos_chassis.errors import (
    InvalidArgument,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
    from_rpc_error,
)
from bos_gateway.agent_input import agent_input, missing_secrets
from bos_gateway.budget import counted, for_attempt
from bos_gateway.continuing import clarification_limit
from bos_gateway.decide import steps_deadline
from bos_gateway.failures import (
    AGENT_PROTOCOL,
    AGENT_UNKNOWN,
    CLARIFICATION_LIMIT,
    CREDENTIAL_LOST,
    DENIED,
    DONE_BEFORE,
    HITL_SKIPPED,
    OUTCOME_UNKNOWN,
    RESULT_TOO_LARGE,
    credentials_lost,
    error_trace,
    failed_result,
    is_model_failure,
    may_repeat,
)
from bos_gateway.proposals import (
    MAX_APPROVAL_BYTES,
    approval_for,
    asked_again,
    denied_before,
    done_before,
    drop_impossible_timeouts,
    proposal_problem,
    proposal_timeout,
)
from bos_gateway.results import (
    MAX_CLARIFICATION_BYTES,
    MAX_REQUEST_BYTES,
    MAX_RESULT_BYTES,
    MAX_TRACE_BYTES,
    MAX_TRACE_EVENTS,
    clamp_result,
    fit,
    result_problem,
    shorten,
    sound_trace,
)
from bos_gateway.state import add_usage
from bos_gateway.step_files import StepFiles

if TYPE_CHECKING:
    from bos_gateway.decide import RunStep
    from bos_gateway.effects import EffectContext

# Not a call that took longer than its step may: the same again would take as long, and its model
# would do all its work once more.
_TRANSIENT = (Unavailable, ResourceExhausted)
# Agents fail by their results; with these they have not begun.
_TURNED_AWAY = (InvalidArgument, PermissionDenied, Unauthenticated)
_AGENT_BUSY = "AGENT_BUSY"
# Contract of every agent: AgentError.details says whether another attempt makes sense.
_RETRYABLE_DETAIL = "retryable"
# The agent ends by itself at its time-out; only then can it hand over what it has. Where models are
# slow, the machine is often busy with them, and so is the agent's answer late.
_MIN_MARGIN_S, _MAX_MARGIN_S, _MARGIN_SHARE = 0.75, 5.0, 0.05
_MAY_HAVE = "What it was to do may have been done all the same."
_NEEDS_APPROVAL = "This agent requires human approval. Use the streaming endpoint."
_MIN_TIMEOUT_S = 0.1
_STORE_FILES_S = 10.0
_WITH_FILES = (AGENT_EXECUTION_STATUS_SUCCEEDED, AGENT_EXECUTION_STATUS_FAILED)
# Kept of what an agent says beside its proposal, so that the event always fits into the log.
_MAX_BESIDE_BYTES = 64 * 1024
_ENDED = frozenset(
    {
        AGENT_EXECUTION_STATUS_SUCCEEDED,
        AGENT_EXECUTION_STATUS_FAILED,
        AGENT_EXECUTION_STATUS_SKIPPED,
        AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION,
        AGENT_EXECUTION_STATUS_AWAITING_APPROVAL,
    }
)


async def run_step(run: EffectContext, command: RunStep) -> None:
    """Have the agent run the step whose dispatch is in the log.

    Ends in StepFinished, or in ApprovalRequested if the agent proposes something.
    """
    await _StepRun(run, command).run()


class _StepRun:
    """All attempts at one step."""

    def __init__(self, run: EffectContext, command: RunStep) -> None:
        self._run = run
        self._command = command
        self._step = run.state.steps[command.step_id]
        self._agent = self._step.step.agent
        self._card = run.state.card(self._agent)
        run.services.result_room.take(run.state)
        self._traced = len(self._step.trace)
        self._traced_bytes = sum(event.ByteSize() for event in self._step.trace)
        self._budgeted = run.state.request.settings.max_tokens > 0

    async def run(self) -> None:
        settings = self._run.services.settings
        attempt = self._command.attempt
        attempts_left = self._card.max_retries if self._card else 0
        wait_s = settings.backoff_s
        started = time.monotonic()
        spent = Usage()
        while True:
            tokens = None
            if self._budgeted:
                rest = self._command.reserved_tokens - counted(spent)
                tokens = for_attempt(rest, attempts_left)
            result, worth_repeating = await self._attempt(attempt, tokens)
            if not result.HasField("usage"):
                # A call that broke off, or an agent that does not count: nobody will say.
                result.usage.unreported_tokens = tokens or 0
            add_usage(spent, result.usage)
            over = self._left_s() <= wait_s
            if not worth_repeating or attempts_left <= 0 or over:
                break
            await self._tell_retry(attempt, result)
            # Jitter keeps steps that failed together from coming back together.
            await asyncio.sleep(wait_s * random.uniform(0.5, 1.0))  # noqa: S311
            wait_s *= self._run.state.request.settings.backoff_multiplier
            attempts_left -= 1
            attempt += 1
            await self._emit_dispatch(attempt)
        result.usage.CopyFrom(spent)
        result.latency.FromNanoseconds(int((time.monotonic() - started) * 1e9))
        if result.status == AGENT_EXECUTION_STATUS_AWAITING_APPROVAL:
            await self._request_approval(result)
            return
        if self._is_unknown(result) and await self._ask_again(result):
            return
        fitting = await self._fitted(result)
        finished = StepFinished(
            revision=self._command.revision,
            step_id=self._command.step_id,
            result=fitting,
            attempts=attempt,
        )
        await self._run.emit(self._run.stamped(LogEvent(step_finished=finished)))

    async def _fitted(self, result: AgentResult) -> AgentResult:
        """The result, cut if it is too large to be kept; that is said in the trace."""
        settings = self._run.services.settings
        rest = settings.max_run_result_bytes - self._run.state.held_bytes
        limit, wanted = MAX_RESULT_BYTES, max(0, min(settings.max_result_bytes, rest))
        room = self._run.services.result_room
        if room.take(self._run.state, min(wanted, result.ByteSize())):
            limit = max(limit, wanted)
        (fitting,) = fit([result], limit)
        if fitting is not result:
            size = result.ByteSize()
            await self._tell(
                f"The result of {size} bytes was cut; at most {limit} bytes can be kept."
            )
        return fitting

    async def _attempt(self, attempt: int, tokens: int | None) -> tuple[AgentResult, bool]:
        """One call of the agent: its result, and whether trying again could help."""
        stub = self._run.services.registry.stub(self._agent)
        if stub is None:
            text = f'No agent named "{self._agent}" is configured here.'
            return _unstarted(await self._failed(AGENT_UNKNOWN, text)), False
        if lost := missing_secrets(self._run.state, self._step, self._run.secrets):
            return _unstarted(await self._failed(CREDENTIAL_LOST, credentials_lost(lost))), False
        command = self._command
        timeout_s = min(self._timeout_s(), self._left_s())
        step_input = agent_input(
            self._run.state,
            self._step,
            command.sub_task,
            attempt=attempt,
            timeout_s=timeout_s,
            token_budget=tokens,
            secrets=self._run.secrets,
        )
        if command.approval is not None:
            step_input.approval_context.CopyFrom(command.approval)
        audiences = [self._agent, *(self._card.downstream_audiences if self._card else ())]
        request = ExecuteRequest(input=step_input)
        if (size := request.ByteSize()) > MAX_REQUEST_BYTES:
            text = f"The inputs of this step are too large: {size} bytes of {MAX_REQUEST_BYTES}."
            return _unstarted(await self._failed(RESULT_TOO_LARGE, text)), False
        call = stub.Execute(
            request,
            timeout=timeout_s + _answer_margin_s(timeout_s),
            metadata=self._run.token(command.sub_task.sub_task_id, audiences, timeout_s),
        )
        performing = command.approval.approved_actions if command.approval else ()
        repeatable = may_repeat(self._card, self._step.step, performing)
        begun = False
        try:
            with StepFiles(self._run.services.file_room) as files:
                async for message in call:
                    begun = True
                    message.DiscardUnknownFields()  # no bound could see into them
                    match message.WhichOneof("payload"):
                        case "result":
                            result, again = await self._checked(message.result, repeatable)
                            await self._keep_files(result, files)
                            return result, again
                        case "file":
                            files.take(message.file)
                        case _:
                            await self._progress(*message.trace.events)
        except grpc.RpcError as error:
            failure = from_rpc_error(error)
            text = f"The agent {self._agent} could not do its part: {failure.message}"
            result = await self._failed(type(failure).__name__, text)
            refused = isinstance(failure, _TURNED_AWAY) or failure.reason == _AGENT_BUSY
            known = _unstarted(result) if refused and not begun else _sent(result, repeatable)
            return known, repeatable and isinstance(failure, _TRANSIENT)
        finally:
            call.cancel()
        text = f"The agent {self._agent} ended without a result."
        return _sent(await self._failed(AGENT_PROTOCOL, text), repeatable), repeatable

    async def _checked(self, result: AgentResult, repeatable: bool) -> tuple[AgentResult, bool]:
        """The agent's own result made whole, or a failure if it makes no sense."""
        checked, clamped = result, clamp_result(result) + drop_impossible_timeouts(result)
        problem = result_problem(result)
        if problem is not None:
            text = f"The agent {self._agent} returned a result that cannot be used: {problem}."
            return _sent(await self._failed(AGENT_PROTOCOL, text), repeatable), False
        if clamped:
            names = ", ".join(clamped)
            await self._tell(f"Impossible numbers of the result were bounded or dropped: {names}.")
        shorten(checked.clarification, MAX_CLARIFICATION_BYTES)
        del checked.trace[:]  # which is what it has told of on the way
        checked.agent_id = self._step.agent_id
        checked.agent_name = self._agent
        checked.depends_on[:] = sorted(self._step.needs)
        if checked.status == AGENT_EXECUTION_STATUS_AWAITING_APPROVAL:
            problem = proposal_problem(self._card, self._step, checked)
            if problem is not None:
                text = f"The agent {self._agent} cannot be asked about: {problem}."
                return await self._failed(AGENT_PROTOCOL, text), False
            if _size(checked) > MAX_APPROVAL_BYTES:
                text = f"What it proposes is too large to be shown: {_size(checked)} bytes."
                return await self._failed(RESULT_TOO_LARGE, text), False
            if denied := denied_before(self._run.state, checked):
                text = f"Nobody allowed this before, so it was not done: {', '.join(denied)}."
                self._turn_down(checked, DENIED, text)
            elif done := done_before(self._run.state, checked):
                text = f"This was done before, or may have been, so not again: {', '.join(done)}."
                self._turn_down(checked, DONE_BEFORE, text)
            elif not self._run.state.request.interactive:
                tools = ", ".join(sorted({action.tool for action in checked.proposed_actions}))
                text = f"This action needs a person's approval and was not performed: {tools}."
                self._turn_down(checked, HITL_SKIPPED, text)
                checked.partial_data.fields["explanation"].string_value = _NEEDS_APPROVAL
        elif (limit := clarification_limit(self._run.state.request, checked)) is not None:
            return await self._failed(CLARIFICATION_LIMIT, limit), False
        elif checked.status not in _ENDED:
            text = f"The agent {self._agent} returned a result without a final status."
            return _sent(await self._failed(AGENT_PROTOCOL, text), repeatable), False
        return checked, repeatable and _is_transient(checked)

    async def _keep_files(self, result: AgentResult, files: StepFiles) -> None:
        """List the files of a result that counts; what cannot be kept is said in the trace."""
        del result.files[:]
        if result.status not in _WITH_FILES:
            return
        request = self._run.state.request
        owner = Owner(request.user_id, UUID(self._run.state.run_id))
        timeout_s = min(_STORE_FILES_S, self._left_s() / 2)
        stored, problems = await files.store(owner, self._run.services.files, timeout_s)
        result.files.extend(stored)
        for text in problems:
            await self._tell(text)

    async def _request_approval(self, result: AgentResult) -> None:
        """Have a person asked; the step's work ends here until there is a decision."""
        settings, now = self._run.services.settings, self._run.now()
        actions = result.proposed_actions
        timeout = proposal_timeout(actions, settings.approval_timeouts, settings.approval_timeout_s)
        approval = approval_for(self._run.state, self._step, result, now, timeout)
        del result.proposed_actions[:]  # they are in the request
        (beside,) = fit([result], _MAX_BESIDE_BYTES)
        requested = ApprovalRequested(
            revision=self._command.revision, approval=approval, result=beside
        )
        await self._run.emit(self._run.stamped(LogEvent(approval_requested=requested)))

    def _is_unknown(self, result: AgentResult) -> bool:
        """Whether nobody can tell if what was approved was done, and repeating it may double it."""
        performing = self._command.approval.approved_actions if self._command.approval else ()
        if not performing or may_repeat(self._card, self._step.step, performing):
            return False
        performed = result.performed_actions
        told = len(performed) == len(performing) and all(p.outcome_unknown for p in performed)
        failed = result.status == AGENT_EXECUTION_STATUS_FAILED
        return failed and (told or result.error.type == OUTCOME_UNKNOWN)

    async def _ask_again(self, result: AgentResult) -> bool:
        """Have a person asked what is to become of it; whether anybody can be."""
        run = self._run
        asked = asked_again(run.state, self._step, run.now(), result.error.message)
        if asked is None:
            return False
        asked.result.usage.CopyFrom(result.usage)
        await run.emit(run.stamped(LogEvent(approval_requested=asked)))
        return True

    def _left_s(self) -> float:
        return self._run.left_s(steps_deadline(self._run.state, self._run.now()))

    def _turn_down(self, result: AgentResult, reason: str, message: str) -> None:
        """Nobody can, or need, be asked, so the proposed action does not happen (SPEC M-14)."""
        result.status = AGENT_EXECUTION_STATUS_SKIPPED
        result.error.type, result.error.message = reason, message
        result.partial_data.fields["reason"].string_value = reason

    async def _failed(self, error_type: str, message: str) -> AgentResult:
        await self._progress(error_trace(self._agent, error_type, message, self._run.now()))
        return failed_result(self._step, error_type, message)

    async def _tell_retry(self, attempt: int, result: AgentResult) -> None:
        self._run.services.metrics.step_retries.labels(self._agent).inc()
        await self._tell(f"Attempt {attempt} failed and is repeated: {result.error.message}")

    async def _tell(self, message: str) -> None:
        # When it was is added on the way.
        await self._progress(
            TraceEvent(type=TRACE_EVENT_TYPE_MESSAGE, agent=self._agent, message=message)
        )

    async def _emit_dispatch(self, attempt: int) -> None:
        """Have the next attempt in the log before it is made, by an owner that still is one."""
        dispatched = StepDispatched(
            revision=self._command.revision,
            step_id=self._command.step_id,
            agent_id=self._step.agent_id,
            sub_task=self._command.sub_task,
            attempt=attempt,
            reserved_tokens=self._command.reserved_tokens,
        )
        await self._run.committed(self._run.stamped(LogEvent(step_dispatched=dispatched)))

    async def _progress(self, *events: TraceEvent) -> None:
        """Store trace events, as many as a step may have."""
        room = MAX_TRACE_EVENTS - self._traced
        self._traced += len(events)
        self._traced_bytes += sum(event.ByteSize() for event in events)
        if room <= 0 or self._traced_bytes > MAX_TRACE_BYTES:
            return
        progressed = StepProgressed(
            revision=self._command.revision,
            step_id=self._command.step_id,
            events=sound_trace(events[:room], self._run.now()),
        )
        await self._run.emit(self._run.stamped(LogEvent(step_progressed=progressed)))

    def _timeout_s(self) -> float:
        step, card = self._step.step, self._card
        if step.HasField("timeout"):
            wanted = step.timeout.ToNanoseconds() / 1e9
        elif card is not None and card.HasField("default_timeout"):
            wanted = card.default_timeout.ToNanoseconds() / 1e9
        else:
            wanted = self._run.services.settings.agent_timeout_s
        return max(_MIN_TIMEOUT_S, wanted)


def _answer_margin_s(timeout_s: float) -> float:
    return max(_MIN_MARGIN_S, min(_MAX_MARGIN_S, timeout_s * _MARGIN_SHARE))


def _is_transient(result: AgentResult) -> bool:
    """Whether the agent failed and says that another attempt could end better.

    Not after a failure of its model, whatever it says: the model's endpoint has been asked again
    already, or is so slow that it must not be asked twice.
    """
    if result.status != AGENT_EXECUTION_STATUS_FAILED or is_model_failure(result.error):
        return False
    retryable = result.error.details.get(_RETRYABLE_DETAIL)
    return retryable is not None and retryable.bool_value


def _size(result: AgentResult) -> int:
    """What a request about the proposed actions takes."""
    proposed = AgentResult(
        proposed_actions=result.proposed_actions, task_description=result.task_description
    )
    return proposed.ByteSize()


def _sent(result: AgentResult, repeatable: bool) -> AgentResult:
    """The failure of an attempt of which nobody knows how far it came, and which says so."""
    if not repeatable:
        result.error.type = OUTCOME_UNKNOWN
        result.error.message += f" {_MAY_HAVE}"
    return result


def _unstarted(result: AgentResult) -> AgentResult:
    """The result of an attempt that cannot have consumed anything, and says so."""
    result.usage.SetInParent()
    return result
