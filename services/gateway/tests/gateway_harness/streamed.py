"""What a client makes of a stream, to its end or until it drops it."""

from collections.abc import Sequence

from bos.gateway.v1 import RunEvent
from bos_testkit.agents import SlowAgent
from gateway_harness.harness import Client


def logged(events: Sequence[RunEvent]) -> list[RunEvent]:
    """The events that are in the log, without the text between them."""
    return [event for event in events if not event.HasField("answer_delta")]


def answer_text(events: Sequence[RunEvent]) -> str:
    """The text of the last attempt.

    Raises:
        AssertionError: a piece is missing, came twice, or is of an attempt that is void.
    """
    attempt, text, sequence = 0, "", 0
    for event in events:
        if event.HasField("answer_started"):
            attempt, text = event.answer_started.attempt, ""
        elif event.HasField("answer_delta"):
            piece = event.answer_delta
            assert (piece.attempt, piece.offset) == (attempt, len(text)), (piece, attempt, text)
            assert event.sequence >= sequence, (event, sequence)
            text += piece.text
        sequence = event.sequence
    return text


def cursor(events: Sequence[RunEvent]) -> dict[str, int]:
    """The fields of a WatchRunRequest that goes on behind these events."""
    if not events:
        return {}
    return {"after_sequence": events[-1].sequence, "after_offset": len(answer_text(events))}


async def seen_until(
    client: Client, kind: str, step_id: str = "", question: str = "Go on?"
) -> list[RunEvent]:
    """The events up to the first of this kind, of this step if one is named."""
    seen: list[RunEvent] = []
    call = client.stream(question)
    try:
        async for message in call:
            seen.append(message.event)
            named = getattr(message.event, kind)
            if message.event.HasField(kind) and (not step_id or named.step_id == step_id):
                break
    finally:
        call.cancel()
    return seen


async def run_under_way(client: Client, slow: SlowAgent) -> str:
    """The id of a run whose slow step was started, and has reached its agent."""
    seen = await seen_until(client, "step_started")
    await slow.started.wait()
    return seen[0].run_id
