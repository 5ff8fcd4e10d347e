"""The events of a response are the same on every replica, at any time."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from bos.agent.v1 import ProposedAction
from bos.common.v1 import Source, SourceType
from bos.gateway.v1 import (
    ActionDisplay,
    AnswerDeltaEvent,
    AnswerStartedEvent,
    Approval,
    ApprovalDisplay,
    ApprovalRequestedEvent,
    OrchestratorResponse,
    RunAcceptedEvent,
    RunEvent,
    RunFinishedEvent,
    RunStatus,
)
from bos_conversation import approval_text
from bos_errors import NotFound
from bos_protocols.openai.completion import CompletionMaker
from bos_protocols.openai.parts import Part, part_of
from bos_protocols.openai.response import ResponseMaker
from bos_protocols.openai.shown import annotations_of

PART = Part("0197")
ANSWER = "It is done 🎉."
ACCEPTED = RunEvent(run_id="0197", sequence=1, run_accepted=RunAcceptedEvent(conversation_id="c"))
ACCEPTED.create_time.seconds = 1_800_000_000


def started(sequence: int = 5, attempt: int = 1) -> RunEvent:
    return RunEvent(
        run_id="0197", sequence=sequence, answer_started=AnswerStartedEvent(attempt=attempt)
    )


def piece(text: str, offset: int, sequence: int = 5) -> RunEvent:
    delta = AnswerDeltaEvent(text=text, attempt=1, offset=offset)
    return RunEvent(run_id="0197", sequence=sequence, answer_delta=delta)


def finished(
    answer: str = ANSWER, status: RunStatus = RunStatus.RUN_STATUS_SUCCEEDED, sequence: int = 9
) -> RunEvent:
    response = OrchestratorResponse(run_id="0197", answer=answer, status=status)
    return RunEvent(
        run_id="0197", sequence=sequence, run_finished=RunFinishedEvent(response=response)
    )


def made(events: Sequence[RunEvent], after: int = -1) -> list[dict[str, Any]]:
    maker = ResponseMaker(PART, starting_after=after)
    return [each for event in events for each in maker.take(event)]


def text_of(events: Sequence[dict[str, Any]], before: str = "") -> str:
    """What a client has that follows the stream."""
    text = before
    for event in events:
        if event["type"] == "response.output_text.delta":
            text += event["delta"]
        elif event["type"] == "response.output_item.done":
            text = "" if event["item"]["status"] == "incomplete" else text
    return text


def test_numbers_grow_and_the_text_is_whole() -> None:
    events = made([ACCEPTED, started(), piece("It ", 0), piece("is ", 3), finished()])
    numbers = [event["sequence_number"] for event in events]
    assert numbers == sorted(set(numbers))
    assert text_of(events) == ANSWER
    assert events[-1]["response"]["output"][-1]["content"][0]["text"] == ANSWER


@pytest.mark.parametrize("cuts", [[1, 3], [2, 7, 9], list(range(1, len(ANSWER)))])
@pytest.mark.parametrize("again", ["pieces", "ended"])
def test_behind_any_event_nothing_is_missing_and_nothing_comes_twice(
    cuts: list[int], again: str
) -> None:
    ends = [0, *cuts]
    pieces = [piece(ANSWER[a:b], a) for a, b in pairwise(ends)]
    first = made([ACCEPTED, started(), *pieces, finished()])
    # Text comes in other pieces the next time, or not at all once the run has ended.
    others = [piece(ANSWER[:6], 0), piece(ANSWER[6:], 6)] if again == "pieces" else []
    for at, event in enumerate(first):
        seen = first[: at + 1]
        rest = made([ACCEPTED, started(), *others, finished()], event["sequence_number"])
        assert text_of(rest, text_of(seen)) == ANSWER
        assert all(each["sequence_number"] > event["sequence_number"] for each in rest)


def test_text_of_an_attempt_that_broke_off_is_void_before_and_after_a_resume() -> None:
    first = made([ACCEPTED, started(), piece("It wa", 0)])
    rest = made([ACCEPTED, started(), started(7, 2), finished()], first[-1]["sequence_number"])
    assert text_of(rest, text_of(first)) == ANSWER
    whole = made([ACCEPTED, started(), piece("It wa", 0), started(7, 2), finished()])
    assert text_of(whole) == ANSWER
    messages = whole[-1]["response"]["output"]
    assert [item["status"] for item in messages] == ["incomplete", "completed"]
    assert not messages[0]["content"]
    assert whole[-1]["response"] == rest[-1]["response"]


def test_an_answer_that_is_not_what_was_written_counts_as_it_ends() -> None:
    events = made([ACCEPTED, started(), piece("Was it", 0), finished()])
    (done,) = [event for event in events if event["type"] == "response.output_text.done"]
    assert done["text"] == ANSWER
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == ANSWER


@pytest.mark.parametrize(
    ("status", "shown", "last"),
    [
        (RunStatus.RUN_STATUS_FAILED, "failed", "response.failed"),
        (RunStatus.RUN_STATUS_CANCELLED, "cancelled", "response.incomplete"),
        (RunStatus.RUN_STATUS_PARTIALLY_SUCCEEDED, "completed", "response.completed"),
        (RunStatus.RUN_STATUS_CLARIFICATION_NEEDED, "completed", "response.completed"),
    ],
)
def test_a_response_ends_as_its_run_does(status: RunStatus, shown: str, last: str) -> None:
    events = made([ACCEPTED, finished("Why.", status)])
    assert events[-1]["type"] == last
    response = events[-1]["response"]
    assert response["status"] == shown
    assert (response["error"] or {}).get("message") == ("Why." if shown == "failed" else None)
    assert response["conversation"] == {"id": "c"}


def waiting(sequence: int) -> RunEvent:
    action = ActionDisplay(title="Send a mail", tool="send_mail")
    approval = Approval(
        approval_id=f"a{sequence}",
        actions=[ProposedAction()],
        display=ApprovalDisplay(actions=[action]),
    )
    asked = ApprovalRequestedEvent(approval=approval)
    return RunEvent(run_id="0197", sequence=sequence, approval_requested=asked)


def test_a_part_ends_where_the_run_asks_and_the_next_begins_behind() -> None:
    maker = ResponseMaker(PART)
    for event in (ACCEPTED, waiting(4)):
        maker.take(event)
    response = maker.response()
    assert response["status"] == "completed"
    assert response["metadata"]["bos_approval_id"] == "a4"
    text = response["output"][0]["content"][0]["text"]
    assert text == approval_text(waiting(4).approval_requested.approval)
    following = part_of(response["metadata"]["bos_next_response_id"])
    assert following == Part("0197", 4)
    maker = ResponseMaker(following)
    for event in (waiting(4), waiting(6)):
        maker.take(event)
    assert maker.response()["metadata"]["bos_approval_id"] == "a6"


def test_what_is_no_id_names_nothing() -> None:
    for response_id in ("", "0197", "resp_a b", "resp_a_0", "resp_a_1_2", "resp_" + "a" * 65):
        with pytest.raises(NotFound):
            part_of(response_id)


def test_marks_of_pages_and_files_become_citations_where_they_stand() -> None:
    sources = [
        Source(type=SourceType.SOURCE_TYPE_WEB, title="Page", uri="https://example.org/"),
        Source(type=SourceType.SOURCE_TYPE_DOCUMENT, title="a.pdf", reference="chunk-1"),
        Source(type=SourceType.SOURCE_TYPE_DATABASE, title="customers"),
        Source(type=SourceType.SOURCE_TYPE_WEB, title="Bad", uri="javascript:alert(1)"),
    ]
    text = "🎉 one [1], two [2], three [3], four [4], none [5] [0]."
    url, file = annotations_of(text, sources)
    assert (url["url"], file["filename"]) == ("https://example.org/", "a.pdf")
    for found, mark in ((url, "[1]"), (file, "[2]")):
        assert text[found["start_index"] : found["end_index"]] == mark


def chunks(events: Sequence[RunEvent]) -> str:
    maker = CompletionMaker(PART, "bos", "")
    deltas = [chunk["choices"][0]["delta"] for event in events for chunk in maker.take(event)]
    return "".join(delta.get("content") or "" for delta in deltas)


def test_chunks_say_the_answer_once() -> None:
    assert chunks([ACCEPTED, started(), piece("It ", 0), finished()]) == ANSWER
    assert chunks([ACCEPTED, finished()]) == ANSWER


def test_chunks_draw_a_line_where_an_answer_starts_over_or_ends_otherwise() -> None:
    over = [ACCEPTED, started(), piece("It wa", 0), started(7, 2), finished()]
    assert chunks(over).split("\n\n---\n\n") == ["It wa", ANSWER]
    otherwise = [ACCEPTED, started(), piece("Was it", 0), finished()]
    assert chunks(otherwise).split("\n\n---\n\n") == ["Was it", ANSWER]


def test_a_completion_that_waits_has_used_nothing_yet() -> None:
    maker = CompletionMaker(PART, "bos", "")
    for event in (ACCEPTED, waiting(4)):
        list(maker.take(event))
    assert maker.completion()["usage"]["total_tokens"] == 0
