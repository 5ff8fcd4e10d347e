"""Runs a step: attempts at one agent until a result counts."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from uuid import UUID

import grpc
from opentelemetry.trace import SpanContext

import bos_errors as errors
from bos.agent.v1 import AgentResult, ExecuteRequest, QueryExample
from bos.common.v1 import TRACE_EVENT_TYPE_MESSAGE, TraceEvent, Usage
from bos.identity.v1 import ConnectionSecret
from bos.runlog.v1 import LogEvent, StepDispatched, StepFinished, StepProgressed
from bos_artefacts import Owner
from bos_chassis.backoff import Backoff
from bos_chassis.credentials.credential_forms import TooManyParts
from bos_chassis.tracing.spans import under
from bos_errors import AgentErrorType
from bos_gateway.core import failures, proposals, result_limits, taint, unknown_outcomes
from bos_gateway.core.agent_input import (
    agent_input,
    is_of_others,
    missing_secrets,
    upstream_files,
)
from bos_gateway.core.budget import counted, for_attempt
from bos_gateway.core.clarification import clarification_limit
from bos_gateway.core.decide import RunStep, steps_deadline
from bos_gateway.core.failures import FailedAttempt
from bos_gateway.core.fold import add_usage
from bos_gateway.core.run_state import (
    AWAITING_APPROVAL,
    FAILED,
    NEEDS_CLARIFICATION,
    SKIPPED,
    SUCCEEDED,
)
from bos_gateway.core.shown import given_links
from bos_gateway.effects import connections, step_approval
from bos_gateway.effects.call_retries import Absence, has_never_left
from bos_gateway.effects.context import EffectContext
from bos_gateway.effects.examples import examples_for
from bos_gateway.effects.input_files import InputFiles
from bos_gateway.effects.step_files import StepFiles, refer_to_kept_files
from bos_gateway.permits.agents import listed_tools, step_problem
from bos_gateway.permits.connections import granted_kinds
from bos_plans import step_outcome

# Not a call that took longer than its step may: the same again would take as long, and its model
# would do all its work once more.
_TRANSIENT = (errors.Unavailable, errors.ResourceExhausted)
# Agents fail by their results; with these they have not begun.
_TURNED_AWAY = (errors.InvalidArgument, errors.PermissionDenied, errors.Unauthenticated)
# The agent ends by itself at its time-out; only then can it hand over what it has. Where models are
# slow, the machine is often busy with them, and so is the agent's answer late.
_MIN_MARGIN_S, _MAX_MARGIN_S, _MARGIN_SHARE = 0.75, 5.0, 0.05
_MIN_TIMEOUT_S = 0.1
# Between two attempts. Those at approved actions go on for as long as the run may take: neither is
# an agent that is away to be called without a pause, nor one that is back to wait for minutes.
_LONGEST_WAIT_S = 5.0
_SHORTEST_WAIT_S, _LEAST_GROWTH = 0.05, 2.0
_STORE_FILES_S = 10.0
_READ_FILES_S = 10.0
_WITH_FILES = (SUCCEEDED, FAILED)
_ENDED = (*_WITH_FILES, SKIPPED, NEEDS_CLARIFICATION)
_FINAL = FailedAttempt(transient=False, unsent=True)


async def run_step(run: EffectContext, command: RunStep) -> None:
    """Run a step whose dispatch is in the log, with retries.

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
        self._access = run.deps.access.of(run.state.request.groups)
        self._performing = command.approval.approved_actions if command.approval else ()
        # An approved action may have been performed by a call that broke off, also one that may be
        # repeated.
        self._acts = failures.has_effects(self._performing)
        self._repeatable = failures.may_repeat(self._card, self._step.step, self._performing)
        self._lost = unknown_outcomes.attempted_before(self._step, command.attempt)
        """An attempt may have performed approved actions without reporting it."""
        self._connections: Sequence[ConnectionSecret] = ()
        self._files = InputFiles(run.deps.file_budget)
        self._examples: Sequence[QueryExample] | None = None
        self._tainted = taint.is_tainted(run.state, self._step)
        """Of its inputs, independent of the agent, or of what the agent says it has read."""
        self._traced = len(self._step.trace)
        self._traced_bytes = sum(event.ByteSize() for event in self._step.trace)
        run.deps.result_budget.take(run.state, known=run.state.held_bytes)

    async def run(self) -> None:
        state, command, attempt = self._run.state, self._command, self._command.attempt
        attempts_left = self._card.max_retries if self._card else 0
        backoff = self._backoff()
        started = time.monotonic()
        spent, absence = Usage(), Absence(self._run.deps.settings.restart_wait_s)
        while True:
            tokens = None
            if state.request.settings.max_tokens > 0:
                tokens = for_attempt(command.reserved_tokens - counted(spent), attempts_left)
            with under(self._span_of(attempt)):
                result, ended = await self._attempt(attempt, tokens)
            if not result.HasField("usage"):
                # A call that broke off, or an agent that does not count: usage stays unknown.
                result.usage.unreported_tokens = tokens or 0
            add_usage(spent, result.usage)
            failed = attempt - command.attempt + 1
            # A service that is being restarted, the agent's or one behind it, costs time and none
            # of the card's attempts; but what a call that broke off has consumed is unknown.
            away = ended.away and tokens is None
            again = failures.may_attempt_again(
                ended,
                approved=bool(self._performing),
                repeatable=self._repeatable,
                retries_left=attempts_left,
                waited_for=away and absence.bearable(),
            )
            wait_s = absence.pause_s(backoff.delay(failed)) if away else backoff.delay(failed)
            if not again or self._left_s() <= wait_s:
                break
            self._run.deps.metrics.step_retries.labels(
                self._run.deps.metrics.agent(self._agent)
            ).inc()
            await self._tell(f"Attempt {attempt} failed and is repeated: {result.error.message}")
            await asyncio.sleep(min(wait_s, backoff.delay(failed, random.random())))  # noqa: S311
            attempts_left = max(0, attempts_left - 1)
            attempt += 1
            await self._dispatched(attempt)
        if unknown_outcomes.leaves_unknown(result.status, lost=self._lost):
            self._mark_unknown(result)
        result.usage.CopyFrom(spent)
        taint.mark(result, tainted=self._tainted)
        given_links.check_result(state, result)
        result.outcome = step_outcome(result)
        result.latency.FromNanoseconds(int((time.monotonic() - started) * 1e9))
        asked = step_approval.request_for(
            run=self._run,
            step=self._step,
            revision=command.revision,
            result=result,
            performing=() if self._repeatable else self._performing,
        )
        if asked is not None:
            event = LogEvent(approval_requested=asked)
        else:
            fitting = await self._fitted(result)
            finished = StepFinished(
                revision=command.revision, step_id=command.step_id, result=fitting, attempts=attempt
            )
            event = LogEvent(step_finished=finished)
        await self._run.emit(self._run.stamped(event))

    def _span_of(self, attempt: int) -> SpanContext | None:
        trace, command = self._run.trace, self._command
        if trace is None:
            return None
        return trace.attempt(command.revision, command.step_id, attempt)

    def _backoff(self) -> Backoff:
        first_s = self._run.deps.settings.backoff_s
        factor = self._run.state.request.settings.backoff_multiplier
        if self._performing:
            first_s, factor = max(first_s, _SHORTEST_WAIT_S), max(factor, _LEAST_GROWTH)
        # Steps that failed together should not come back together.
        return Backoff(first_s=first_s, cap_s=_LONGEST_WAIT_S, factor=factor, jitter=0.5)

    async def _dispatched(self, attempt: int) -> None:
        """Append the dispatch before the agent is called, fenced by owner and epoch."""
        dispatched = StepDispatched(
            revision=self._command.revision,
            step_id=self._command.step_id,
            agent_id=self._step.agent_id,
            sub_task=self._command.sub_task,
            attempt=attempt,
            reserved_tokens=self._command.reserved_tokens,
        )
        await self._run.committed(self._run.stamped(LogEvent(step_dispatched=dispatched)))

    async def _attempt(self, attempt: int, tokens: int | None) -> tuple[AgentResult, FailedAttempt]:
        """One call of the agent: its result, and what another one depends on."""
        run = self._run
        stub = run.deps.registry.stub(self._agent)
        if stub is None:
            text = f'No agent named "{self._agent}" is configured here.'
            return await self._failed(AgentErrorType.AGENT_UNKNOWN, text, unsent=True), _FINAL
        if barred := step_problem(self._step.step, self._access, self._performing):
            return await self._failed(AgentErrorType.PERMISSION_DENIED, barred, unsent=True), _FINAL
        if lost := missing_secrets(run.state, self._step, run.secrets):
            text = failures.credentials_lost(lost)
            return await self._failed(AgentErrorType.CREDENTIAL_LOST, text, unsent=True), _FINAL
        timeout_s = min(self._timeout_s(), self._left_s())
        if unconnected := await self._connected(timeout_s):
            return unconnected, FailedAttempt(transient=True, unsent=True, away=True)
        if unread := await self._read_files(timeout_s):
            return unread, FailedAttempt(transient=True, unsent=True, away=True)
        if self._examples is None:
            self._examples = await examples_for(run, self._card, self._command.sub_task)
            self._tainted |= is_of_others(self._examples)
        request = self._request(attempt, timeout_s, tokens)
        if (size := request.ByteSize()) > (most := result_limits.MAX_REQUEST_BYTES):
            text = f"The inputs of this step are too large: {size} bytes of {most}."
            return await self._failed(AgentErrorType.RESULT_TOO_LARGE, text, unsent=True), _FINAL
        step_key = self._command.sub_task.sub_task_id
        token = run.agent_token(self._agent, self._card, timeout_s, step_key)
        margin_s = max(_MIN_MARGIN_S, min(_MAX_MARGIN_S, timeout_s * _MARGIN_SHARE))
        call = stub.Execute(request, timeout=timeout_s + margin_s, metadata=token)
        files, begun, acting = StepFiles(run.deps.file_budget), False, bool(self._performing)
        try:
            async for message in call:
                begun = True
                message.DiscardUnknownFields()  # no bound could see into them
                kind = message.WhichOneof("payload")
                # Before anything is cut: half a credential is not found.
                if kind == "file":
                    message.file.name = run.masker.text(message.file.name)
                else:
                    run.masker.mask(message)
                match kind:
                    case "result":
                        # Also of a result that cannot be used, or that another attempt follows.
                        self._tainted |= message.result.tainted
                        result = await self._checked(message.result)
                        await self._keep_files(result, files)
                        self._lost |= acting and unknown_outcomes.says_unknown(result)
                        away = result.error.type == errors.Unavailable.__name__
                        return result, FailedAttempt(_is_transient(result), away=away)
                    case "file":
                        files.take(message.file)
                    case _:
                        await self._progress(*message.trace.events)
        except grpc.RpcError as error:
            failure = errors.from_rpc_error(error)
            away = isinstance(failure, errors.Unavailable)
            turned_away = isinstance(failure, _TURNED_AWAY) or failure.reason == "AGENT_BUSY"
            unsent = not begun and (turned_away or has_never_left(error))
            self._lost |= acting and not unsent
            said = run.masker.text(failure.message, may_be_cut=True)
            text = f"The agent {self._agent} could not do its part: {said}"
            result = await self._failed(
                type(failure).__name__, text, unsent=unsent, unknown=not unsent
            )
            # An error has no place where the agent could say what it has read.
            result.tainted = errors.is_worded_by_peer(error)
            return result, FailedAttempt(isinstance(failure, _TRANSIENT), unsent, away)
        finally:
            call.cancel()
        text = f"The agent {self._agent} ended without a result."
        self._lost |= acting
        result = await self._failed(AgentErrorType.AGENT_PROTOCOL_ERROR, text, unknown=True)
        return result, FailedAttempt(transient=True)

    async def _connected(self, timeout_s: float) -> AgentResult | None:
        """Get the user's connections that this step may have; a failure if that cannot be done."""
        run, deps = self._run, self._run.deps
        kinds = granted_kinds(self._card, self._agent, deps.settings.agent_connections)
        if not kinds:
            return None
        try:
            self._connections = await deps.connections.of(
                kinds,
                agent=self._agent,
                token=run.token(connections.IDENTITY, connections.TIMEOUT_S),
                timeout_s=timeout_s,
            )
            secrets = {each.connection.kind: each.secret for each in self._connections}
            self._run = run.with_secrets(secrets)
        except (errors.BosError, TooManyParts):
            text = "Your connections to outside systems cannot be read at the moment."
            return await self._failed(errors.Unavailable.__name__, text, unsent=True)
        return None

    async def _read_files(self, timeout_s: float) -> AgentResult | None:
        """Read the files of earlier steps for an agent that takes them; a failure if that fails."""
        if self._card is None or not self._card.takes_files:
            return None
        deps, most = self._run.deps, self._run.deps.settings.max_input_file_bytes
        listed = upstream_files(self._run.state, self._step)
        owner = Owner(self._run.state.request.user_id, UUID(self._run.state.run_id))
        try:
            await self._files.read(
                listed, owner, deps.files, max_bytes=most, timeout_s=min(_READ_FILES_S, timeout_s)
            )
        except errors.BosError as error:
            text = f"Files of earlier steps cannot be read at the moment: {error.message}"
            return await self._failed(errors.Unavailable.__name__, text, unsent=True)
        return None

    def _request(self, attempt: int, timeout_s: float, tokens: int | None) -> ExecuteRequest:
        step_input = agent_input(
            self._run.state,
            self._step,
            self._command.sub_task,
            attempt=attempt,
            timeout_s=timeout_s,
            token_budget=tokens,
            secrets=self._run.secrets,
            connections=self._connections,
            files=self._files.read_files,
            verified_queries=self._examples or (),
        )
        step_input.tools[:] = listed_tools(self._step.step, self._card, self._access)
        if self._command.approval is not None:
            step_input.approval_context.CopyFrom(self._command.approval)
        return ExecuteRequest(input=step_input)

    async def _checked(self, result: AgentResult) -> AgentResult:
        """The agent's result, normalised; a failure if it is invalid."""
        clamped = result_limits.clamp_result(result) + proposals.drop_impossible_timeouts(result)
        if problem := result_limits.result_problem(result):
            text = f"The agent {self._agent} returned a result that cannot be used: {problem}."
            return await self._failed(AgentErrorType.AGENT_PROTOCOL_ERROR, text, unknown=True)
        if result.HasField("table"):
            result_limits.bound_table(result.table, self._run.state.request.request)
        if clamped:
            names = ", ".join(clamped)
            await self._tell(f"Impossible numbers of the result were bounded or dropped: {names}.")
        result_limits.shorten(result.clarification, result_limits.MAX_CLARIFICATION_BYTES)
        del result.trace[:]  # which is what it has sent on the way
        result.agent_id = self._step.agent_id
        result.agent_name = self._agent
        result.depends_on[:] = sorted(self._step.needs)
        if result.status == AWAITING_APPROVAL:
            return await self._proposal(result)
        if limit := clarification_limit(self._run.state.request, result):
            return await self._failed(AgentErrorType.CLARIFICATION_LIMIT, limit)
        if result.status not in _ENDED:
            text = f"The agent {self._agent} returned a result without a final status."
            return await self._failed(AgentErrorType.AGENT_PROTOCOL_ERROR, text, unknown=True)
        return result

    async def _proposal(self, result: AgentResult) -> AgentResult:
        """The result whose actions need an approval, unless that is impossible or needless."""
        if problem := step_approval.proposal_problem(self._card, self._step, result):
            return await self._failed(*problem)
        step_approval.skip_unless_asked(self._run.state, result)
        return result

    async def _keep_files(self, result: AgentResult, files: StepFiles) -> None:
        """List the files of a result that counts; what cannot be kept is said in the trace."""
        del result.files[:]
        if result.status not in _WITH_FILES:
            refer_to_kept_files(result)
            return
        owner = Owner(self._run.state.request.user_id, UUID(self._run.state.run_id))
        timeout_s = min(_STORE_FILES_S, self._left_s() / 2)
        stored, problems = await files.store(owner, self._run.deps.files, timeout_s)
        result.files.extend(stored)
        refer_to_kept_files(result)
        for text in problems:
            await self._tell(text)

    async def _fitted(self, result: AgentResult) -> AgentResult:
        """The result, cut if it is too large to be kept; that is said in the trace."""
        settings, state, size = self._run.deps.settings, self._run.state, result.ByteSize()
        rest = settings.max_run_result_bytes - state.held_bytes
        limit, wanted = result_limits.MAX_RESULT_BYTES, max(0, min(settings.max_result_bytes, rest))
        if self._run.deps.result_budget.take(state, min(wanted, size), known=state.held_bytes):
            limit = max(limit, wanted)
        (fitting,) = result_limits.fit([result], limit)
        if fitting is not result:
            text = f"The result of {size} bytes was cut; at most {limit} bytes can be kept."
            await self._tell(text)
        return fitting

    async def _failed(
        self, error_type: str, message: str, *, unsent: bool = False, unknown: bool = False
    ) -> AgentResult:
        """A failure in the agent's stead, with its trace event.

        Args:
            error_type: Of the error.
            message: Text for users.
            unsent: Whether the attempt cannot have consumed anything.
            unknown: Whether it is unknown how far the agent came.
        """
        now = self._run.now()
        await self._progress(failures.error_trace(self._agent, error_type, message, now))
        result = failures.failed_result(self._step, error_type, message)
        if unsent:
            result.usage.SetInParent()
        if unknown and (self._acts or not self._repeatable):
            self._mark_unknown(result)
        return result

    def _mark_unknown(self, result: AgentResult) -> None:
        """Have a failure say that what was to be done may have been done."""
        if result.error.type != AgentErrorType.OUTCOME_UNKNOWN:
            result.error.type = AgentErrorType.OUTCOME_UNKNOWN
            result.error.message += " What it was to do may have been done all the same."

    async def _tell(self, message: str) -> None:
        said = TraceEvent(type=TRACE_EVENT_TYPE_MESSAGE, agent=self._agent, message=message)
        await self._progress(said)

    async def _progress(self, *events: TraceEvent) -> None:
        """Store trace events, as many as a step may have."""
        kept = list(events[: max(0, result_limits.MAX_TRACE_EVENTS - self._traced)])
        self._traced += len(events)
        self._traced_bytes += sum(event.ByteSize() for event in events)
        if not kept or self._traced_bytes > result_limits.MAX_TRACE_BYTES:
            return
        result_limits.sound_trace(kept, self._run.now())  # which adds the time where it is missing
        revision, step_id = self._command.revision, self._command.step_id
        progressed = StepProgressed(revision=revision, step_id=step_id, events=kept)
        await self._run.emit(self._run.stamped(LogEvent(step_progressed=progressed)))

    def _timeout_s(self) -> float:
        step, card = self._step.step, self._card
        if step.HasField("timeout"):
            wanted = step.timeout.ToNanoseconds() / 1e9
        elif card is not None and card.HasField("default_timeout"):
            wanted = card.default_timeout.ToNanoseconds() / 1e9
        else:
            wanted = self._run.deps.settings.agent_timeout_s
        return max(_MIN_TIMEOUT_S, wanted)

    def _left_s(self) -> float:
        return self._run.left_s(steps_deadline(self._run.state, self._run.now()))


def _is_transient(result: AgentResult) -> bool:
    """Whether the agent failed and says that another attempt may end better.

    Not after a failure of its model, even if it says so: the model's endpoint has been asked again
    already, or is so slow that it must not be asked twice.
    """
    return (
        result.status == FAILED
        and result.error.retryable
        and not failures.is_model_failure(result.error)
    )
