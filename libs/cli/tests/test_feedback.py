"""Feedback on answers, by ``bos feedback``."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bos.gateway.v1 import (
    FEEDBACK_RATING_DOWN,
    FEEDBACK_REASON_CORRECTNESS,
    FEEDBACK_REASON_SPEED,
    DeleteRunFeedbackResponse,
    FeedbackServiceServicer,
    RunFeedback,
    SetRunFeedbackResponse,
    add_FeedbackServiceServicer_to_server,
)
from bos_chassis.auth.callers import StaticKey
from bos_chassis.server import Servicer, grpc_server
from bos_chassis.settings import ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_cli.main import main
from bos_errors import NotFound

KEY = "a-key-of-the-tests"
RUN_ID = "0190-run"


class Judged(FeedbackServiceServicer):
    """A gateway with one run."""

    def __init__(self) -> None:
        self.stored: RunFeedback | None = None
        self.address = ""

    async def SetRunFeedback(self, request: Any, context: Any) -> SetRunFeedbackResponse:
        if request.run_id != RUN_ID:
            raise NotFound("There is no such run.")
        self.stored = request.feedback
        return SetRunFeedbackResponse(feedback=self.stored)

    async def DeleteRunFeedback(self, request: Any, context: Any) -> DeleteRunFeedbackResponse:
        self.stored = None
        return DeleteRunFeedbackResponse()


@pytest.fixture
async def judged() -> AsyncIterator[Judged]:
    servicer = Judged()
    name = "bos.gateway.v1.FeedbackService"
    async with grpc_server(
        ServerSettings.load(grace_s=0.0),
        [Servicer(servicer, add_FeedbackServiceServicer_to_server, name)],
        telemetry=Telemetry.for_tests("gateway"),
        auth=StaticKey(KEY),
    ) as server:
        servicer.address = server.address
        yield servicer


async def bos(judged: Judged, *arguments: str) -> Result:
    at = ["--target", judged.address, "--api-key", KEY]
    return await asyncio.to_thread(CliRunner().invoke, main, [*at, "feedback", *arguments])


async def test_feedback_is_given_with_reasons_and_note_and_taken_back(judged: Judged) -> None:
    reasons = ("--reason", "speed", "--reason", "correctness", "--reason", "speed")
    given = await bos(judged, RUN_ID, "down", *reasons, "--note", "It was\n12.")
    assert (given.exit_code, given.output) == (
        0,
        "Feedback: down; speed, correctness; It was 12.\n",
    )
    assert judged.stored == RunFeedback(
        rating=FEEDBACK_RATING_DOWN,
        reasons=[FEEDBACK_REASON_SPEED, FEEDBACK_REASON_CORRECTNESS],
        note="It was\n12.",
    )
    good = await bos(judged, RUN_ID, "up", "--json")
    assert json.loads(good.output)["rating"] == "FEEDBACK_RATING_UP"
    assert (await bos(judged, RUN_ID, "none")).output == "Taken back.\n"
    assert judged.stored is None


@pytest.mark.parametrize(
    "arguments",
    [("another", "up"), (RUN_ID, "none", "--note", "x"), (RUN_ID, "up", "--reason", "colour")],
)
async def test_unknown_runs_and_contradicting_options_are_refused(
    judged: Judged, arguments: tuple[str, ...]
) -> None:
    refused = await bos(judged, *arguments)
    assert refused.exit_code == 2, refused.output
    assert judged.stored is None
