"""Followers of a feed: no gap, nothing twice, no text before its time, wherever they come back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bos.runlog.v1 import AnswerStarted, LogEvent, RunFinished, StepProgressed
from bos_gateway.core.public_events import Cursor, Piece
from bos_gateway.runs.feed import RunFeed

if TYPE_CHECKING:
    from collections.abc import Sequence

    Shown = tuple[int, LogEvent | Piece]


def started(attempt: int) -> LogEvent:
    return LogEvent(answer_started=AnswerStarted(attempt=attempt))


def other(name: str = "a") -> LogEvent:
    return LogEvent(step_progressed=StepProgressed(step_id=name))


def finished() -> LogEvent:
    return LogEvent(run_finished=RunFinished())


async def rest(feed: RunFeed, after: Cursor = Cursor()) -> list[Shown]:  # noqa: B008  immutable
    return [shown async for shown in feed.follow(after)]


def pieces(shown: Sequence[Shown]) -> list[tuple[int, Piece]]:
    return [(sequence, each) for sequence, each in shown if isinstance(each, Piece)]


async def test_text_is_held_back_until_its_start_is_shown() -> None:
    feed = RunFeed([other()])
    feed.say(1, "early")
    follower = feed.follow(Cursor())
    assert await anext(follower) == (1, other())
    waiting = asyncio.ensure_future(anext(follower))
    await asyncio.sleep(0)
    assert not waiting.done()
    feed.publish([started(1)])
    assert await waiting == (2, started(1))
    assert await anext(follower) == (2, Piece(1, 0, "early"))
    feed.close()
    assert [each async for each in follower] == []


async def test_slow_follower_gets_rest_in_one_piece_and_then_end() -> None:
    feed = RunFeed([started(1)])
    follower = feed.follow(Cursor())
    assert await anext(follower) == (1, started(1))
    feed.say(1, "one ")
    assert await anext(follower) == (1, Piece(1, 0, "one "))
    for word in ("two ", "three ", "four"):
        feed.say(1, word)
    feed.publish([finished()])
    feed.close()
    assert [each async for each in follower] == [
        (1, Piece(1, 4, "two three four")),
        (2, finished()),
    ]


async def test_text_of_an_earlier_attempt_is_dropped() -> None:
    feed = RunFeed([started(1), other()])
    feed.say(1, "old")
    feed.publish([started(2)])
    for attempt, text in ((2, "ne"), (1, "late"), (2, "w")):
        feed.say(attempt, text)
    feed.close()
    assert pieces(await rest(feed)) == [(3, Piece(2, 0, "new"))]


@pytest.mark.parametrize(
    ("after", "text"),
    [
        (Cursor(0, 0), "text"),
        (Cursor(1, 0), "text"),
        (Cursor(1, 3), "t"),
        (Cursor(2, 3), "t"),
        (Cursor(2, 4), None),
        (Cursor(2, 2**60), None),
        (Cursor(0, 3), "text"),  # of an attempt before this one
    ],
)
async def test_coming_back_anywhere_gives_what_is_missing(after: Cursor, text: str | None) -> None:
    feed = RunFeed([started(7), other()])
    feed.say(7, "text")
    feed.close()
    found = pieces(await rest(feed, after))
    assert [piece.text for _, piece in found] == ([] if text is None else [text])


async def test_following_ends_at_events_that_are_no_longer_held() -> None:
    feed = RunFeed([other("a"), other("b"), other("c")], before=10)
    feed.forget(12)
    feed.close()
    assert await rest(feed, Cursor(11)) == []
    assert await rest(feed, Cursor(12)) == [(13, other("c"))]
    assert feed.last_sequence == 13


async def test_failure_reaches_a_follower_behind_all_events() -> None:
    feed = RunFeed([other()])
    feed.close(OSError("gone"))
    follower = feed.follow(Cursor())
    assert await anext(follower) == (1, other())
    with pytest.raises(OSError, match="gone"):
        await anext(follower)


# What an owner does: starts an attempt, says something, stores something else, lets time pass.
ACTS = st.lists(st.sampled_from(["start", "say", "store", "breathe"]), max_size=40)


@pytest.mark.requirement("P-09")
@given(acts=ACTS, leaves=st.lists(st.integers(1, 5), max_size=10))
def test_follower_that_resumes_sees_everything_once(acts: list[str], leaves: list[int]) -> None:
    async def scenario() -> None:
        feed = RunFeed([other("first")])
        log, attempt, text = [other("first")], 0, ""
        seen = asyncio.create_task(follow_with_breaks(feed, leaves))
        for number, act in enumerate(acts):
            if act == "start":
                attempt, text = attempt + 1, ""
                log.append(started(attempt))
                feed.publish(log[-1:])
            elif act == "say" and attempt:
                text += f"{number} "
                feed.say(attempt, f"{number} ")
            elif act == "store":
                log.append(other(str(number)))
                feed.publish(log[-1:])
            else:
                await asyncio.sleep(0)
        feed.publish([finished()])
        feed.close()
        events, words = await seen
        assert events == [*log, finished()]
        assert words == text

    asyncio.run(scenario())


async def follow_with_breaks(feed: RunFeed, leaves: list[int]) -> tuple[list[LogEvent], str]:
    """The events, and the text of the last attempt, of a client that leaves again and again."""
    cursor, events, text = Cursor(), list[LogEvent](), ""
    for stay in [*leaves, 10_000]:
        left = stay
        async for sequence, shown in feed.follow(cursor):
            cursor = cursor.moved(sequence, shown)
            if isinstance(shown, Piece):
                assert shown.offset == len(text)
                text += shown.text
            else:
                assert sequence == len(events) + 1
                events.append(shown)
                text = "" if shown.HasField("answer_started") else text
            left -= 1
            if not left:
                break
    return events, text
