"""Model calls that their callers can do without: a reply, or one kind of failure for all causes."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel
from rig import Rig

from bos_chassis import deadlines
from bos_chassis.telemetry import Telemetry
from bos_llm import (
    Completion,
    Message,
    Model,
    NoReply,
    TextDelta,
    TokenBudget,
    attempt,
    set_budget,
    stream,
    user,
)
from bos_llm.fallback import RESERVE_S, plain_sentence
from bos_testkit.scripted_model.faults import Knobs
from bos_testkit.waiting import eventually

AMPLE_S = 60.0
UNCONFIGURED = {"base_url": None}


class Plan(BaseModel):
    steps: list[str]
    note: str | None


def asks() -> Sequence[Message]:
    return [user("the top five")]


def greets() -> Sequence[Message]:
    return [user("hello")]


async def attempted(model: Model | None, **options: Any) -> Plan:
    options = {"within_s": AMPLE_S, **options}
    return (await attempt(model, options.pop("prompt", asks), Plan, **options)).value


async def streamed(
    model: Model | None, into: list[TextDelta | Completion] | None = None, **options: Any
) -> list[TextDelta | Completion]:
    items = [] if into is None else into
    options = {"within_s": AMPLE_S, **options}
    async with aclosing(stream(model, options.pop("prompt", greets), **options)) as pieces:
        async for item in pieces:
            items.append(item)
    return items


CALLS = pytest.mark.parametrize("call", [attempted, streamed])


async def test_reply_comes_with_its_usage(rig: Rig) -> None:
    reply = await attempt(await rig.model(), asks, Plan, within_s=AMPLE_S)
    assert reply.value.steps == ["query", "share"]
    assert (reply.usage.calls, reply.repaired) == (1, False)


async def test_limits_of_the_reply_are_passed_on(rig: Rig) -> None:
    await attempted(await rig.model(), max_tokens=77, form_in="last")
    assert rig.server.requests[-1].body["max_tokens"] == 77
    (message,) = rig.server.requests[-1].messages
    assert "one JSON object" in message["content"], "the form is in the last message"


async def test_stream_ends_with_the_whole_and_its_usage(rig: Rig) -> None:
    *pieces, last = await streamed(await rig.model())
    assert isinstance(last, Completion)
    assert "".join(piece.text for piece in pieces) == last.text == "Good day to you, dear reader."
    assert last.usage.calls == 1


@CALLS
@pytest.mark.parametrize("has_model", [False, True])
async def test_without_a_model_nothing_is_written_or_sent(
    rig: Rig, call: Callable[..., Any], has_model: bool
) -> None:
    def prompt() -> Sequence[Message]:
        raise AssertionError("a prompt for no model")

    model = await rig.model(**UNCONFIGURED) if has_model else None
    with pytest.raises(NoReply) as caught:
        await call(model, prompt=prompt)
    assert caught.value.not_configured
    assert caught.value.message == "No model is configured."
    assert caught.value.error_type == "ModelNotConfigured"
    assert rig.server.calls == 0


@CALLS
@pytest.mark.parametrize(
    ("spoil", "reason", "error_type"),
    [
        (lambda knobs: knobs.fail_next(9, status=500), "MODEL_UNAVAILABLE", "ModelUnavailable"),
        (lambda knobs: knobs.fail_next(9, status=429), "MODEL_RATE_LIMITED", "ModelRateLimited"),
        (lambda knobs: knobs.fail_next(9, status=401), "MODEL_KEY_REJECTED", "ModelNotConfigured"),
        (lambda knobs: knobs.empty_next(9), "MODEL_OUTPUT_INVALID", "ModelOutputInvalid"),
    ],
)
async def test_model_that_fails_is_no_reply_and_not_the_same_as_none(
    rig: Rig,
    call: Callable[..., Any],
    spoil: Callable[[Knobs], None],
    reason: str,
    error_type: str,
) -> None:
    spoil(rig.server.knobs)
    with pytest.raises(NoReply) as caught:
        await call(await rig.model())
    assert (caught.value.reason, caught.value.error_type) == (reason, error_type)
    assert not caught.value.not_configured
    assert caught.value.message == str(caught.value.__cause__.message)  # type: ignore[union-attr]


async def test_usage_of_unusable_replies_is_counted(rig: Rig) -> None:
    model = await rig.model()
    rig.server.knobs.prose_next(2)
    with pytest.raises(NoReply) as caught:
        await attempted(model)
    assert caught.value.usage.calls == rig.server.calls == 2
    rig.server.knobs.fail_next(9, status=500)
    with pytest.raises(NoReply) as caught:
        await attempted(model)
    assert caught.value.usage.calls == 0


@CALLS
async def test_late_model_is_given_up_and_holds_no_tokens(
    rig: Rig, call: Callable[..., Any]
) -> None:
    budget = TokenBudget(None)
    set_budget(budget)
    rig.server.knobs.latency_s = 600
    with pytest.raises(NoReply) as caught:
        await call(await rig.model(), within_s=0.2)
    assert (caught.value.reason, caught.value.error_type) == ("MODEL_TIMEOUT", "TimeoutError")
    assert caught.value.message == "The model took too long."
    assert budget.under_way == 0
    await eventually(lambda: rig.server.in_flight == 0)


@CALLS
@pytest.mark.parametrize("spare", [0.0, AMPLE_S])
async def test_callers_own_deadline_leaves_time_to_do_without(
    rig: Rig, call: Callable[..., Any], spare: float
) -> None:
    """At its last half second the model is not even asked."""
    model = await rig.model()
    deadlines.set_remaining(RESERVE_S + spare)
    if spare:
        await call(model)
    else:
        with pytest.raises(NoReply) as caught:
            await call(model)
        assert caught.value.reason == "MODEL_TIMEOUT"
    assert rig.server.calls == (1 if spare else 0)


@CALLS
async def test_spent_budget_is_no_reply(rig: Rig, call: Callable[..., Any]) -> None:
    set_budget(TokenBudget(10))
    with pytest.raises(NoReply) as caught:
        await call(await rig.model())
    assert caught.value.reason == "BUDGET_EXHAUSTED"
    assert rig.server.calls == 0


def broken_prompt() -> Sequence[Message]:
    raise ZeroDivisionError("a secret detail")


@CALLS
async def test_defect_is_logged_or_raised_without_a_log(rig: Rig, call: Callable[..., Any]) -> None:
    model, telemetry = await rig.model(), Telemetry.for_tests()
    with pytest.raises(ZeroDivisionError):
        await call(model, prompt=broken_prompt)
    with pytest.raises(NoReply) as caught:
        await call(model, prompt=broken_prompt, log=telemetry.logger("test"))
    assert (caught.value.reason, caught.value.error_type) == ("INTERNAL", "ZeroDivisionError")
    assert caught.value.message == "The model could not be asked."
    (entry,) = telemetry.logs
    assert (entry["event"], entry["log_level"]) == ("model call failed unexpectedly", "error")
    assert entry["exc_info"] is True


@CALLS
async def test_cancellation_passes_and_ends_the_call(rig: Rig, call: Callable[..., Any]) -> None:
    rig.server.knobs.latency_s = 600
    log = rig.telemetry.logger("test")
    working = asyncio.create_task(call(await rig.model(), log=log))
    await eventually(lambda: rig.server.in_flight == 1)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    await eventually(lambda: rig.server.in_flight == 0)


async def test_stream_that_breaks_off_is_no_reply_after_its_pieces(rig: Rig) -> None:
    rig.server.knobs.broken_stream_next(1, after_chunks=4)
    items: list[TextDelta | Completion] = []
    with pytest.raises(NoReply) as caught:
        await streamed(await rig.model(), items)
    assert items
    assert not any(isinstance(item, Completion) for item in items)
    assert caught.value.error_type == "ModelUnavailable"


class Dictating:
    """Has its first piece at once, and then nothing more."""

    configured = True

    async def stream(self, *_: Any, **__: Any) -> AsyncGenerator[TextDelta, None]:
        yield TextDelta("Good ")
        await asyncio.Event().wait()


async def test_time_limit_of_stream_ends_model_and_never_its_reader() -> None:
    model: Any = Dictating()
    clock = asyncio.get_running_loop().time
    async with aclosing(stream(model, greets, within_s=0.05)) as pieces:
        assert await anext(pieces) == TextDelta("Good ")
        over = clock() + 0.05
        await eventually(lambda: clock() > over)  # a reader that is slow is not interrupted
        with pytest.raises(NoReply) as caught:
            await anext(pieces)
    assert caught.value.reason == "MODEL_TIMEOUT"


@pytest.mark.parametrize(
    ("result", "stdout", "sentence"),
    [
        (Decimal("87.50"), "", "The result is 87.50."),
        (0.1 + 0.2, "", "The result is 0.3."),
        ({"share": Decimal("43.7"), "top": 5}, "", "The result is share = 43.7; top = 5."),
        ([1, 2, 3], "", "The result is 1, 2, 3."),
        ([{"a": 1}, {"a": 2}], "", "The result is a table of 2 rows."),
        (None, "half past nine\n", "The program printed: half past nine"),
        (None, "", "The program ran and gave no result."),
        ([], "", "The result is an empty list."),
    ],
)
def test_a_result_is_stated_without_a_model(result: Any, stdout: str, sentence: str) -> None:
    assert plain_sentence(result, stdout) == sentence


@pytest.mark.parametrize(("length", "cut"), [(600, False), (601, True)])
def test_a_long_result_is_cut(length: int, cut: bool) -> None:
    said = plain_sentence("x" * length, "")
    assert said == f"The result is {'x' * 600}{'…' if cut else ''}."
