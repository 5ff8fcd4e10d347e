"""Composes the answer: streamed, or assembled here if the composer fails."""

from __future__ import annotations

from bos.composer.v1 import ComposeRequest, ComposerOutput
from bos.runlog.v1 import AnswerStarted, LogEvent, RunFinished
from bos_errors import AgentErrorType, BosError
from bos_gateway.core.clarification import question_of
from bos_gateway.core.decide import Compose, run_deadline
from bos_gateway.core.failures import error_trace
from bos_gateway.core.response import composed_response, fallback_output, final_answer
from bos_gateway.core.result_limits import (
    MAX_RESULTS_BYTES,
    bound_table,
    clamp_usage,
    fit,
    fit_output,
)
from bos_gateway.core.revision_context import definitive_failure, working_context
from bos_gateway.core.run_state import RunState
from bos_gateway.core.shown.given_links import check_output, stream_check
from bos_gateway.core.shown.masking import MaskedStream
from bos_gateway.effects.call_retries import streamed
from bos_gateway.effects.context import COMPOSER, EffectContext

# What is streamed of one answer at most; a composer that writes more is heard to its end, and the
# answer is what its output says.
MAX_STREAMED_BYTES = 1024 * 1024


async def compose(run: EffectContext, command: Compose) -> None:
    """Have the answer composed; ends in RunFinished."""
    attempt = run.state.answer_attempt + 1
    output, problem = final_answer(run.state), ""
    held = command.token_budget if output is None else 0
    await _started(run, attempt, held)
    if output is not None:
        run.say(attempt, output.answer)
    else:
        output, problem = await _composed(run, attempt, command.token_budget)
    fit_output(output, run.now())
    if output.HasField("data"):
        bound_table(output.data, run.state.request.request)
    response = composed_response(run.state, run.now(), output, problem=problem)
    await run.emit(run.stamped(LogEvent(run_finished=RunFinished(response=response))))


async def _started(run: EffectContext, attempt: int, reserved_tokens: int | None) -> None:
    started = AnswerStarted(attempt=attempt, reserved_tokens=reserved_tokens)
    await run.emit(run.stamped(LogEvent(answer_started=started)))


async def _composed(
    run: EffectContext, attempt: int, token_budget: int | None
) -> tuple[ComposerOutput, str]:
    """What the composer made of the results, and what went wrong if the gateway had to."""
    limit_s = run.state.request.settings.compose_timeout.ToNanoseconds() / 1e9
    timeout_s = min(limit_s, run.left_s(run_deadline(run.state)))
    request, token = _request(run.state, token_budget), run.token(COMPOSER, timeout_s)
    restart_s = run.deps.settings.restart_wait_s
    messages = streamed(run.deps.composer.Compose, request, timeout_s, token, restart_s=restart_s)
    # What waits at its end is in the answer.
    room, text, links = MAX_STREAMED_BYTES, MaskedStream(run.masker), stream_check(run.state)
    try:
        async for message in messages:
            if message is None:
                # The composer died: what followers saw of its answer counts no more.
                attempt += 1
                await _started(run, attempt, token_budget)
                room, text = MAX_STREAMED_BYTES, MaskedStream(run.masker)
                links = stream_check(run.state)
                continue
            if message.WhichOneof("payload") == "output":
                clamp_usage(message.output.usage)
                check_output(run.state, message.output)
                if links is not None and (rest := links.end()):
                    run.say(attempt, rest)
                return message.output, ""
            room -= len(message.delta.encode())
            shown = text.add(message.delta) if room >= 0 else ""
            if links is not None:
                shown = links.add(shown)
            if shown:
                run.say(attempt, shown)
        problem = "The composer ended without an answer."
    except BosError as error:
        problem = error.message
    finally:
        await messages.aclose()
    log = run.deps.telemetry.logger("bos.gateway.compose")
    log.warning("composing failed", run=run.state.run_id, problem=problem)
    output = fallback_output(run.state)
    # What the call consumed will not be reported.
    output.usage.unreported_tokens = token_budget or 0
    why = f"The answer was put together without the composer: {problem}"
    output.trace.append(error_trace(COMPOSER, AgentErrorType.COMPOSING_FAILED, why, run.now()))
    return output, problem


def _request(state: RunState, token_budget: int | None) -> ComposeRequest:
    accepted = state.request
    steps = [step for step in state.result_steps if step.result is not None]
    results = [step.result for step in steps if step.result is not None]
    failure = definitive_failure(state)
    return ComposeRequest(
        question=question_of(accepted),
        clarifications=accepted.clarifications,
        decision=state.decision,
        intent=state.intent,
        results=fit(results, MAX_RESULTS_BYTES),
        step_ids=[step.step.step_id for step in steps],
        long_term_memory=accepted.long_term_memory,
        conversation_history=accepted.conversation_history,
        system_prompt=accepted.request.system_prompt,
        context=accepted.request.context,
        model=accepted.request.model,
        token_budget=token_budget,
        # What went wrong on the way matters only if it was not mended.
        working_context=working_context(state) if failure else None,
        remarks=[failure] if failure else (),
    )
