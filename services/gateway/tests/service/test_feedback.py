"""Feedback on runs: stored beside the log, changed, taken back, and of their owner alone."""

from pathlib import Path
from typing import Any

from gateway_harness.answering import refusal
from gateway_harness.callers import signed_in, token
from gateway_harness.harness import Harness

from bos.gateway.v1 import (
    FEEDBACK_RATING_DOWN,
    FEEDBACK_RATING_UP,
    FEEDBACK_REASON_SOURCES,
    FEEDBACK_REASON_SPEED,
    AgentRequest,
    AskRequest,
    DeleteRunFeedbackRequest,
    FeedbackServiceStub,
    GetRunRequest,
    RunFeedback,
    SetRunFeedbackRequest,
)
from bos_testkit.agents import EchoAgent
from bos_testkit.plans import step

ADA = token("ada")


async def test_feedback_is_shown_with_its_run_changed_and_taken_back(
    harness: Harness, tmp_path: Path
) -> None:
    await harness.add_agent(EchoAgent("echo"))
    harness.planner.steps = [step("a", "echo")]
    async with harness.gateway(auth=signed_in(tmp_path)) as gateway:
        stub: Any = FeedbackServiceStub(gateway.channel)
        ask = AskRequest(request=AgentRequest(question="What is new?"))
        run_id = (await gateway.stub.Ask(ask, timeout=30, metadata=ADA)).response.run_id

        async def shown() -> Any:
            get = GetRunRequest(run_id=run_id)
            return (await gateway.stub.GetRun(get, timeout=30, metadata=ADA)).run

        async def give(feedback: RunFeedback, run: str = run_id) -> RunFeedback:
            request = SetRunFeedbackRequest(run_id=run, feedback=feedback)
            return (await stub.SetRunFeedback(request, timeout=30, metadata=ADA)).feedback

        async def take_back(run: str = run_id) -> None:
            request = DeleteRunFeedbackRequest(run_id=run)
            await stub.DeleteRunFeedback(request, timeout=30, metadata=ADA)

        def counted(rating: str) -> float:
            return gateway.metric("bos_run_feedback_total", rating=rating) or 0.0

        before = await shown()
        assert not before.HasField("feedback")
        await take_back()  # there is none, which is as well

        reasons = [FEEDBACK_REASON_SPEED, FEEDBACK_REASON_SOURCES]
        bad = RunFeedback(rating=FEEDBACK_RATING_DOWN, reasons=reasons, note="Page 3\nsays 12.")
        first = await give(bad)
        assert (first.rating, first.note) == (FEEDBACK_RATING_DOWN, "Page 3\nsays 12.")
        assert list(first.reasons) == sorted(reasons)
        assert first.create_time == first.update_time
        now = await shown()
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
        assert (await shown()).feedback.note == "Thank you"

        for invalid in (
            RunFeedback(),
            RunFeedback(rating=9),  # type: ignore[arg-type]
            RunFeedback(rating=FEEDBACK_RATING_UP, note="x" * 2001),
            RunFeedback(rating=FEEDBACK_RATING_UP, note="a\0b"),
            RunFeedback(rating=FEEDBACK_RATING_UP, reasons=[reasons[0], reasons[0]]),
        ):
            assert (await refusal(give(invalid))).reason == "INVALID_ARGUMENT", invalid

        await take_back()
        assert not (await shown()).HasField("feedback")
        assert counted("taken_back") == 1
