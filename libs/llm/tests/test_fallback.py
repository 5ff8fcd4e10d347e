"""Model calls that their callers can do without: a reply, or one kind of failure for all causes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

import pytest
from pydantic import BaseModel

from bos_chassis import deadlines
from bos_chassis.telemetry import Telemetry
from bos_llm import (
    Completion,
    Message,
    Model,
    NoReply,
    Structured,
    TextDelta,
    TokenBudget,
    Usage,
    attempt,
    set_budget,
    stream,
    user,
)
from bos_llm.fallback import RESERVE_S
from bos_testkit.scripted_model.faults import Knobs
from bos_testkit.waiting import eventually

if TYPE_CHECKING:
    from conftest import Rig

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


class Recording:
    """Notes how it is asked."""

    configured = True

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    async def structured(
        self, messages: Sequence[Message], schema: type[Plan], **options: Any
    ) -> Structured[Plan]:
        self.asked.append(options)
        return Structured(schema(steps=[], note=None), Usage(), repaired=False)


@pytest.mark.parametrize("form_in", ["system", "last"])
async def test_place_of_the_form_is_passed_on(form_in: str) -> None:
    model = Recording()
    await attempted(cast("Model", model), form_in=form_in)
    assert model.asked == [{"max_tokens": None, "form_in": form_in}]


async def test_limits_of_the_reply_are_passed_on(rig: Rig) -> None:
    await attempted(await rig.model(), max_tokens=77)
    assert rig.server.requests[-1].body["max_tokens"] == 77


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


async def test_unusable_replies_are_paid_for_and_those_that_never_came_are_not(rig: Rig) -> None:
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
@pytest.mark.parametrize("tokens", [10, 100_000])
async def test_spent_budget_is_no_reply_and_nothing_is_sent(
    rig: Rig, call: Callable[..., Any], tokens: int
) -> None:
    set_budget(TokenBudget(tokens))
    model = await rig.model()
    if tokens == 10:
        with pytest.raises(NoReply) as caught:
            await call(model)
        assert caught.value.reason == "BUDGET_EXHAUSTED"
    else:
        await call(model)
    assert rig.server.calls == (0 if tokens == 10 else 1)


def broken_prompt() -> Sequence[Message]:
    raise ZeroDivisionError("a secret detail")


@CALLS
async def test_defect_is_logged_where_there_is_a_log_and_raised_where_there_is_none(
    rig: Rig, call: Callable[..., Any]
) -> None:
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


@pytest.mark.parametrize(("patient", "calls"), [(True, 2), (False, 1)])
async def test_impatient_stream_asks_once(rig: Rig, patient: bool, calls: int) -> None:
    rig.server.knobs.fail_next(9, status=500)
    with pytest.raises(NoReply):
        await streamed(await rig.model(), patient=patient)
    assert rig.server.calls == calls


class Dictating:
    """Has its first piece at once, and then nothing more."""

    configured = True

    async def stream(self, *_: Any, **__: Any) -> AsyncGenerator[TextDelta, None]:
        yield TextDelta("Good ")
        await asyncio.Event().wait()


async def test_time_limit_of_a_stream_ends_the_model_and_never_its_reader() -> None:
    model: Any = Dictating()
    clock = asyncio.get_running_loop().time
    async with aclosing(stream(model, greets, within_s=0.05)) as pieces:
        assert await anext(pieces) == TextDelta("Good ")
        over = clock() + 0.05
        await eventually(lambda: clock() > over)  # a reader that is slow is not interrupted
        with pytest.raises(NoReply) as caught:
            await anext(pieces)
    assert caught.value.reason == "MODEL_TIMEOUT"
