import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

import bos_errors as errors
from bos.gateway.v1 import RunEvent
from bos_client import BosClient, Reconnect
from bos_testkit.scripted_gateway import KEY, RUN_ID, Gateway, Starter, client, story


def places(events: Sequence[RunEvent]) -> list[tuple[int, int]]:
    """Where a stream would go on after each of the events: sequence and offset."""
    found, offset = [], 0
    for event in events:
        if event.HasField("answer_delta"):
            assert event.answer_delta.offset == offset, "text is missing or came twice"
            offset += len(event.answer_delta.text)
        elif event.HasField("answer_started"):
            offset = 0
        found.append((event.sequence, offset))
    return found


PLACES = places(story())


async def seen_of(events: AsyncIterator[RunEvent]) -> list[RunEvent]:
    return [event async for event in events]


async def test_ask_sends_options_and_returns_outcome(bos: BosClient, gateway: Gateway) -> None:
    outcome = await bos.ask(
        "Who leads?",
        context={"current_date": "2026-06-15", "limits": {"rows": [1, None, True]}},
        prefer_agents=["sql"],
        include_data=False,
        timeout_s=2.5,
    )

    assert outcome.answer == "Acme leads [1]."
    (asked,) = gateway.asked
    assert asked.request_id
    assert asked.context["current_date"] == "2026-06-15"
    assert asked.context["limits"]["rows"][2] is True
    assert list(asked.prefer_agents) == ["sql"]
    assert asked.HasField("include_data")
    assert not asked.include_data
    assert asked.timeout.ToMilliseconds() == 2500


async def test_asking_resumes_the_same_run(bos: BosClient, gateway: Gateway) -> None:
    gateway.unary_failures = 2
    await bos.ask("Who leads?")
    gateway.unary_failures = 2
    submitted = await bos.submit("Who leads?", trace=True)

    assert submitted.run_id == RUN_ID
    assert len(gateway.asked) == 6
    for asked in (gateway.asked[:3], gateway.asked[3:]):
        assert len({request.request_id for request in asked}) == 1
    assert gateway.asked[3].trace
    gateway.unary_failures = 1000
    with pytest.raises(errors.Unavailable):
        await bos.submit("Who leads?")


async def test_run_is_waited_for_only_if_asked(bos: BosClient, gateway: Gateway) -> None:
    await bos.get_run(RUN_ID)
    await bos.get_run(RUN_ID, wait_s=2.5)
    await bos.get_run(RUN_ID, wait_s=60, after_sequence=0)

    at_once, until_end, until_news = gateway.looked_up
    assert not at_once.HasField("wait")
    assert until_end.wait.ToMilliseconds() == 2500
    assert not until_end.HasField("after_sequence")
    assert until_news.HasField("after_sequence")


@pytest.mark.parametrize("sent", range(len(PLACES)))
async def test_broken_stream_has_no_gap(bos: BosClient, gateway: Gateway, sent: int) -> None:
    gateway.breaks_after = [sent]

    assert await seen_of(bos.ask_stream("Who leads?")) == story()
    if sent:
        assert gateway.watched == [PLACES[sent - 1]]
    else:
        # Nothing is known of the run yet: the question is asked again under the same id.
        assert len({request.request_id for request in gateway.asked}) == 1
        assert len(gateway.asked) == 2


async def test_stream_that_ends_early_is_broken(bos: BosClient, gateway: Gateway) -> None:
    gateway.ends_after = [3, 2]

    assert await seen_of(bos.ask_stream("Who leads?")) == story()
    assert gateway.watched == [PLACES[2], PLACES[4]]


async def test_stream_gives_up_after_its_attempts(bos: BosClient, gateway: Gateway) -> None:
    gateway.breaks_after = [1] * 8
    assert await seen_of(bos.ask_stream("Who leads?")) == story(), "it got on each time"
    gateway.watched.clear()
    gateway.breaks_after = [2] + [0] * 20

    with pytest.raises(errors.Unavailable):
        await seen_of(bos.ask_stream("Who leads?"))
    assert gateway.watched == [PLACES[1]] * 4


async def test_a_stream_finds_a_gateway_that_was_killed_and_started_again(start: Starter) -> None:
    first = Gateway(holds_after=4)
    async with AsyncExitStack() as life:
        await Starter(life)(first)
        patient = client(first, reconnect=Reconnect(first_s=0.02, cap_s=0.2))
        await start()  # keeps the event loop's grpc alive while the first one is away
        async with patient as bos:
            seen = asyncio.create_task(seen_of(bos.ask_stream("Who leads?")))
            await first.silent.wait()
            await life.aclose()
            second = await start(port=int(first.address.rpartition(":")[2]))

            assert await seen == story()
            assert second.watched == [PLACES[3]]


async def test_watching_from_behind_the_end_of_a_run_is_empty(bos: BosClient) -> None:
    assert await seen_of(bos.watch(RUN_ID, *PLACES[-1])) == []
    assert await seen_of(bos.watch(RUN_ID, *PLACES[-3])) == story()[-2:]


async def test_repeated_text_of_a_stream_is_dropped(bos: BosClient, gateway: Gateway) -> None:
    """No gateway should; a client that shows text twice would be worse than one that is careful."""
    sent = [
        {"answer_started": {"attempt": 1}},
        {"answer_delta": {"text": "\N{SNOWMAN}ne ", "attempt": 1}},
        {"answer_delta": {"text": "ne two ", "attempt": 1, "offset": 1}},
        {"answer_delta": {"text": "ne", "attempt": 1, "offset": 1}},
        {"cancel_requested": {}},
        {"answer_delta": {"text": "three", "attempt": 1, "offset": 8}},
        {"answer_started": {"attempt": 2}},
        {"answer_delta": {"text": "anew", "attempt": 2}},
    ]
    sequence = 0
    gateway.events[:-1] = []
    for kind in sent:
        sequence += "answer_delta" not in kind
        event = RunEvent(run_id=RUN_ID, sequence=sequence, **kind)
        gateway.events.insert(len(gateway.events) - 1, event)

    seen = await seen_of(bos.ask_stream("Who leads?"))

    assert places(seen)
    texts = [event.answer_delta.text for event in seen if event.HasField("answer_delta")]
    assert texts == ["\N{SNOWMAN}ne ", "two ", "three", "anew"]


async def test_closing_a_stream_early_ends_the_call(bos: BosClient, gateway: Gateway) -> None:
    gateway.holds_after = 2
    events = bos.ask_stream("Who leads?")
    assert (await anext(events)).run_id == RUN_ID
    await events.aclose()
    gateway.holds_after = None
    assert await seen_of(bos.ask_stream("Who leads?")) == story()


async def test_waiting_ends_with_the_time_that_was_given(gateway: Gateway) -> None:
    gateway.holds_after = 3
    async with client(gateway, run_timeout_s=0.3) as bos:
        with pytest.raises(errors.DeadlineExceeded):
            await seen_of(bos.ask_stream("Who leads?"))


async def test_short_calls(bos: BosClient) -> None:
    assert (await bos.get_run(RUN_ID)).question == "Who leads?"
    assert (await bos.list_runs(page_size=1)).next_page_token == "next"
    assert [agent.card.name for agent in await bos.agents()] == ["sql", "web"]
    assert [step.step_id for step in (await bos.plan("Who leads?")).plan.steps] == ["find", "share"]
    assert (await bos.cancel(RUN_ID, "enough")).run_id == RUN_ID


@pytest.mark.parametrize(
    "raised",
    [
        errors.InvalidArgument.field("request.question", "must not be empty"),
        errors.ResourceExhausted("full", retry_after_s=1.5),
        errors.Internal("broken"),
    ],
)
async def test_errors_are_typed(bos: BosClient, gateway: Gateway, raised: errors.BosError) -> None:
    gateway.error = raised

    for call in (bos.agents(), bos.ask("Who leads?"), anext(bos.ask_stream("Who leads?"))):
        with pytest.raises(type(raised)) as caught:
            await call
        assert vars(caught.value) == vars(raised)


async def test_internal_error_shows_no_detail(bos: BosClient, gateway: Gateway) -> None:
    gateway.error = RuntimeError("password=secret")

    with pytest.raises(errors.Internal) as caught:
        await bos.agents()
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("key", [None, "another-key"])
async def test_a_wrong_or_missing_key_is_unauthenticated(gateway: Gateway, key: str | None) -> None:
    async with BosClient(gateway.address, api_key=key) as bos:
        with pytest.raises(errors.Unauthenticated):
            await bos.agents()


async def test_a_target_that_does_not_exist_is_unavailable() -> None:
    async with BosClient("127.0.0.1:1", api_key=KEY, reconnect=Reconnect(2, 0.001)) as bos:
        for call in (bos.agents(), bos.ask("Who?"), anext(bos.ask_stream("Who?"))):
            with pytest.raises(errors.Unavailable, match="not reachable"):
                await call


@pytest.mark.parametrize(
    "options",
    [
        {"context": {"when": object()}},
        {"timeout_s": 0},
        {"prefer_agents": [7]},
        {"no_such_option": 1},
    ],
)
async def test_invalid_options(bos: BosClient, gateway: Gateway, options: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidArgument) as caught:
        await bos.ask("Who leads?", **options)
    assert caught.value.violations
    assert not gateway.asked


async def test_outside_of_its_block_a_client_says_so() -> None:
    with pytest.raises(RuntimeError, match="async with"):
        await BosClient("127.0.0.1:1").agents()
