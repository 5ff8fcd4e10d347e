from collections.abc import Sequence
from contextlib import aclosing

import pytest
from rig import Rig

from bos_chassis import deadlines
from bos_errors import DeadlineExceeded
from bos_llm import (
    Completion,
    Message,
    Model,
    ModelUnavailable,
    TextDelta,
    user,
)
from bos_testkit.waiting import eventually

HELLO = [user("hello")]


async def collect(
    model: Model, messages: Sequence[Message] = HELLO
) -> list[TextDelta | Completion]:
    return [item async for item in model.stream(messages)]


async def collect_into(items: list[TextDelta | Completion], model: Model) -> None:
    async for item in model.stream(HELLO):
        items.append(item)


async def test_stream_yields_its_pieces_and_then_whole_with_usage(rig: Rig) -> None:
    *deltas, last = await collect(await rig.model())
    assert all(isinstance(delta, TextDelta) for delta in deltas)
    assert 1 <= len(deltas) <= 6, "what arrives together is one piece"
    assert isinstance(last, Completion)
    assert last.text == "".join(delta.text for delta in deltas) == "Good day to you, dear reader."
    assert (last.usage.calls, last.usage.output_tokens) == (1, 8)
    assert rig.server.requests[-1].body["stream_options"] == {"include_usage": True}


async def test_a_stream_ended_by_the_token_limit_says_so(rig: Rig) -> None:
    items = [item async for item in (await rig.model()).stream(HELLO, max_tokens=2)]
    assert isinstance(items[-1], Completion)
    assert items[-1].truncated


async def test_failures_before_the_first_piece_are_retried(rig: Rig) -> None:
    rig.server.knobs.fail_next(status=429, retry_after=2)
    items = await collect(await rig.model())
    assert isinstance(items[-1], Completion)
    assert rig.slept == [2.0]


@pytest.mark.parametrize("how", ["html_next", "malformed_json_next", "broken_stream_next"])
async def test_stream_starts_at_the_second_attempt_or_not_at_all(rig: Rig, how: str) -> None:
    options = {"after_chunks": 1} if how == "broken_stream_next" else {}
    getattr(rig.server.knobs, how)(**options)
    items = await collect(await rig.model())
    assert isinstance(items[-1], Completion)
    assert rig.server.calls == 2
    getattr(rig.server.knobs, how)(2, **options)
    with pytest.raises(ModelUnavailable):
        await collect(await rig.model(max_attempts=2))


async def test_a_stream_that_breaks_off_fails_after_what_it_yielded(rig: Rig) -> None:
    rig.server.knobs.broken_stream_next(after_chunks=3)
    shown: list[TextDelta | Completion] = []
    with pytest.raises(ModelUnavailable):
        await collect_into(shown, await rig.model())
    assert "".join(item.text for item in shown) == "Good day "
    assert rig.server.calls == 1, "a half-shown answer is not asked for again"


async def test_silence_between_chunks_ends_a_stream(rig: Rig) -> None:
    rig.server.knobs.chunk_delay_s = 60
    with pytest.raises(ModelUnavailable) as caught:
        await collect(await rig.model(stream_idle_timeout_s=0.5, max_attempts=1))
    assert caught.value.reason == "MODEL_TIMEOUT"
    await eventually(lambda: rig.server.abandoned == 1)


async def test_a_stream_ends_at_the_deadline_of_the_current_call(rig: Rig) -> None:
    rig.server.knobs.chunk_delay_s = 60
    model = await rig.model()
    deadlines.set_remaining(1.0)
    with pytest.raises(DeadlineExceeded):
        await collect(model)
    await eventually(lambda: rig.server.abandoned == 1)


async def test_leaving_a_stream_early_ends_the_request_and_its_span(rig: Rig) -> None:
    rig.server.knobs.chunk_delay_s = 0.01
    async with aclosing((await rig.model()).stream(HELLO)) as items:
        async for item in items:
            assert isinstance(item, TextDelta)
            break
    await eventually(lambda: rig.server.abandoned == 1)
    assert rig.telemetry.spans[-1].attributes["error.type"] == "cancelled"


async def test_an_endless_stream_is_cut(rig: Rig) -> None:
    with pytest.raises(ModelUnavailable):
        await collect(await rig.model(max_reply_chars=10, max_attempts=1))
