"""What a client makes of a stream: events of the log, text of the answer, and where to go on."""

from collections.abc import Sequence

from bos.gateway.v1 import RunEvent


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
