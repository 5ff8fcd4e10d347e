"""Feedback on runs: stored beside the log, changed, taken back, and of their owner alone."""

from pathlib import Path

from gateway_harness.answering import refusal
from gateway_harness.callers import signed_in, token
from gateway_harness.harness import Harness

from bos.gateway.v1 import (
    FEEDBACK_RATING_DOWN,
    FEEDBACK_RATING_UP,
    FEEDBACK_REASON_SOURCES,
    FEEDBACK_REASON_SPEED,
    DeleteRunFeedbackRequest,
    RunFeedback,
    SetRunFeedbackRequest,
)


async def test_feedback_is_shown_with_its_run_changed_and_taken_back(
    harness: Harness, tmp_path: Path
) -> None:
    async with harness.gateway(auth=signed_in(tmp_path)) as anyone:
        gateway = anyone.by(token("ada"))
        run_id = (await gateway.ask()).run_id

        async def give(feedback: RunFeedback, run: str = run_id) -> RunFeedback:
            request = SetRunFeedbackRequest(run_id=run, feedback=feedback)
            return (await gateway.call(request)).feedback

        async def take_back(run: str = run_id) -> None:
            await gateway.call(DeleteRunFeedbackRequest(run_id=run))

        def counted(rating: str) -> float:
            return gateway.metric("bos_run_feedback_total", rating=rating) or 0.0

        before = await gateway.run(run_id)
        assert not before.HasField("feedback")
        await take_back()  # there is none, which is as well

        reasons = [FEEDBACK_REASON_SPEED, FEEDBACK_REASON_SOURCES]
        bad = RunFeedback(rating=FEEDBACK_RATING_DOWN, reasons=reasons, note="Page 3\nsays 12.")
        first = await give(bad)
        assert (first.rating, first.note) == (FEEDBACK_RATING_DOWN, "Page 3\nsays 12.")
        assert list(first.reasons) == sorted(reasons)
        assert first.create_time == first.update_time
        now = await gateway.run(run_id)
        assert now.feedback == first
        # It is no event of the run, which therefore stays as it is.
        assert (now.last_sequence, now.update_time) == (before.last_sequence, before.update_time)

        second = await give(RunFeedback(rating=FEEDBACK_RATING_UP))
        assert (second.note, list(second.reasons)) == ("", [])
        assert second.create_time == first.create_time
        assert second.update_time.ToDatetime() > first.update_time.ToDatetime()
        await give(RunFeedback(rating=FEEDBACK_RATING_UP, note="Thank you"))
        assert (counted("up"), counted("down"), counted("taken_back")) == (1, 1, 0)

        for call in (give(bad, run="no-uuid"), take_back(run="no-uuid")):
            assert (await refusal(call)).message == "There is no such run."
        assert (await gateway.run(run_id)).feedback.note == "Thank you"

        for invalid in (
            RunFeedback(),
            RunFeedback(rating=9),
            RunFeedback(rating=FEEDBACK_RATING_UP, note="x" * 2001),
            RunFeedback(rating=FEEDBACK_RATING_UP, note="a\0b"),
            RunFeedback(rating=FEEDBACK_RATING_UP, reasons=[reasons[0], reasons[0]]),
        ):
            assert (await refusal(give(invalid))).reason == "INVALID_ARGUMENT", invalid

        await take_back()
        assert not (await gateway.run(run_id)).HasField("feedback")
        assert counted("taken_back") == 1
