"""Verified queries, by ``bos sql``."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bos.agent.v1 import AgentExecutionStatus
from bos.common.v1 import DatabaseQuery
from bos.gateway.v1 import (
    FEEDBACK_RATING_DOWN,
    FEEDBACK_REASON_CORRECTNESS,
    FEEDBACK_REASON_SPEED,
    CancelUserRunResponse,
    CreateVerifiedQueryResponse,
    DeleteRunFeedbackResponse,
    DeleteVerifiedQueryResponse,
    FeedbackServiceServicer,
    GetUserRunResponse,
    ListUserRunsResponse,
    ListVerifiedQueriesResponse,
    OperatorServiceServicer,
    RunFeedback,
    RunOverview,
    RunStatus,
    SetRunFeedbackResponse,
    StepOverview,
    VerifiedQuery,
    VerifiedQueryServiceServicer,
)
from bos_cli.main import main
from bos_errors import NotFound
from bos_testkit.scripted_gateway import RUN_ID

from .commands import invoke, serving

SQL = "SELECT 1\nFROM orders"


class Reviewed(VerifiedQueryServiceServicer):
    """A gateway with one run, and what was verified of it."""

    def __init__(self) -> None:
        self.stored: list[VerifiedQuery] = []
        self.asked: Any = None
        self.address = ""

    async def CreateVerifiedQuery(self, request: Any, context: Any) -> CreateVerifiedQueryResponse:
        if request.run_id != RUN_ID:
            raise NotFound("There is no such run.")
        self.asked = request
        made = VerifiedQuery(
            query_id=f"q{len(self.stored)}",
            question="How many\norders?",
            query=DatabaseQuery(database="company", sql=request.corrected_sql or SQL),
            group=request.group,
            corrected=bool(request.corrected_sql),
            own=not request.group,
        )
        self.stored.append(made)
        return CreateVerifiedQueryResponse(verified_query=made)

    async def ListVerifiedQueries(self, request: Any, context: Any) -> ListVerifiedQueriesResponse:
        start = int(request.page_token or 0)
        end = start + request.page_size
        token = str(end) if end < len(self.stored) else ""
        return ListVerifiedQueriesResponse(
            verified_queries=self.stored[start:end], next_page_token=token
        )

    async def DeleteVerifiedQuery(self, request: Any, context: Any) -> DeleteVerifiedQueryResponse:
        kept = [each for each in self.stored if each.query_id != request.query_id]
        if len(kept) == len(self.stored):
            raise NotFound("There is no such verified query.")
        self.stored = kept
        return DeleteVerifiedQueryResponse()


@pytest.fixture
async def reviewed() -> AsyncIterator[Reviewed]:
    servicer = Reviewed()
    async with serving(servicer) as servicer.address:
        yield servicer


async def test_queries_are_verified_and_taken_back(reviewed: Reviewed, tmp_path: Path) -> None:
    assert (await invoke(reviewed.address, "sql", "verified")).output == "no verified queries\n"
    made = await invoke(reviewed.address, "sql", "verify", RUN_ID, "--step", "b")
    assert made.exit_code == 0, made.output
    assert "  Question: How many orders?\n" in made.output
    assert "    SELECT 1\n    FROM orders\n" in made.output
    assert made.output.endswith("Take it back: bos sql unverify q0\n")
    assert (reviewed.asked.step_id, reviewed.asked.corrected_sql) == ("b", "")

    file = tmp_path / "right.sql"
    file.write_text("SELECT 2 FROM orders\n")
    shared = await invoke(
        reviewed.address,
        "sql",
        "verify",
        RUN_ID,
        "--group",
        "analysts",
        "--sql",
        str(file),
        "--json",
    )
    assert json.loads(shared.output)["group"] == "analysts"
    assert reviewed.asked.corrected_sql == "SELECT 2 FROM orders\n"
    piped = await invoke(reviewed.address, "sql", "verify", RUN_ID, "--sql", "-", stdin="SELECT 3")
    assert "; corrected" in piped.output

    page = await invoke(reviewed.address, "sql", "verified", "--limit", "2")
    assert "for group analysts; corrected; by another member" in page.output
    assert page.output.endswith("More: bos sql verified --page 2\n")
    rest = await invoke(reviewed.address, "sql", "verified", "--page", "2", "--json")
    assert len(json.loads(rest.output)["verified_queries"]) == 1
    assert (await invoke(reviewed.address, "sql", "unverify", "q1")).output == "Taken back.\n"
    assert [each.query_id for each in reviewed.stored] == ["q0", "q2"]


async def test_text_of_another_member_does_not_leave_its_lines(reviewed: Reviewed) -> None:
    hostile = VerifiedQuery(
        query_id="q",
        question="Fine\n  Database: mine\x1b[2J",
        query=DatabaseQuery(database="a\nb", sql="SELECT 1\rTaken back.\n\x1b]0;x\x07"),
        group="g",
    )
    reviewed.stored.append(hostile)
    output = (await invoke(reviewed.address, "sql", "verified")).output
    assert "\x1b" not in output
    assert "\r" not in output
    assert output.count("\n  Database: ") == 1


async def test_what_cannot_be_verified_says_why(reviewed: Reviewed, tmp_path: Path) -> None:
    assert (await invoke(reviewed.address, "sql", "verify", "another")).exit_code == 2
    assert (await invoke(reviewed.address, "sql", "unverify", "none")).exit_code == 2
    for content, why in (
        (b"", "is empty"),
        (b"\xff\xfe", "no text in UTF-8"),
        (b"x" * 6001, "over 6000 characters"),
    ):
        file = tmp_path / "bad.sql"
        file.write_bytes(content)
        refused = await invoke(reviewed.address, "sql", "verify", RUN_ID, "--sql", str(file))
        assert refused.exit_code == 2
        assert why in refused.output
    assert reviewed.stored == []


class Judged(FeedbackServiceServicer):
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
    async with serving(servicer) as servicer.address:
        yield servicer


async def test_feedback_is_given_with_reasons_and_note_and_taken_back(judged: Judged) -> None:
    reasons = ("--reason", "speed", "--reason", "correctness", "--reason", "speed")
    given = await invoke(
        judged.address, "feedback", RUN_ID, "down", *reasons, "--note", "It was\n12."
    )
    assert (given.exit_code, given.output) == (
        0,
        "Feedback: down; speed, correctness; It was 12.\n",
    )
    assert judged.stored == RunFeedback(
        rating=FEEDBACK_RATING_DOWN,
        reasons=[FEEDBACK_REASON_SPEED, FEEDBACK_REASON_CORRECTNESS],
        note="It was\n12.",
    )
    good = await invoke(judged.address, "feedback", RUN_ID, "up", "--json")
    assert json.loads(good.output)["rating"] == "FEEDBACK_RATING_UP"
    assert (await invoke(judged.address, "feedback", RUN_ID, "none")).output == "Taken back.\n"
    assert judged.stored is None


@pytest.mark.parametrize(
    "arguments",
    [("another", "up"), (RUN_ID, "none", "--note", "x"), (RUN_ID, "up", "--reason", "colour")],
)
async def test_wrong_feedback_is_refused(judged: Judged, arguments: tuple[str, ...]) -> None:
    refused = await invoke(judged.address, "feedback", *arguments)
    assert refused.exit_code == 2, refused.output
    assert judged.stored is None


class Operated(OperatorServiceServicer):
    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.address = ""

    def run(self, status: RunStatus = RunStatus.RUN_STATUS_FAILED) -> RunOverview:
        step = StepOverview(
            revision=1,
            place=2,
            agent="sql",
            status=AgentExecutionStatus.AGENT_EXECUTION_STATUS_FAILED,
            attempts=3,
            error_type="Timeout",
        )
        step.latency.FromMilliseconds(1500)
        return RunOverview(
            run_id=RUN_ID, user_id="eve", status=status, agents=["sql"], tokens=4711, steps=[step]
        )

    async def ListUserRuns(self, request: Any, context: Any) -> ListUserRunsResponse:
        self.asked.append(request)
        return ListUserRunsResponse(runs=[self.run()], next_page_token="next")

    async def GetUserRun(self, request: Any, context: Any) -> GetUserRunResponse:
        self.asked.append(request)
        return GetUserRunResponse(run=self.run())

    async def CancelUserRun(self, request: Any, context: Any) -> CancelUserRunResponse:
        self.asked.append(request)
        return CancelUserRunResponse(run=self.run(RunStatus.RUN_STATUS_CANCELLED))


@pytest.fixture
async def operated() -> AsyncIterator[Operated]:
    servicer = Operated()
    async with serving(servicer) as servicer.address:
        yield servicer


async def said(operated: Operated, *arguments: str) -> str:
    done = await invoke(operated.address, *arguments)
    assert done.exit_code == 0, done.output
    return done.output


async def test_runs_of_others_are_listed_shown_and_ended(operated: Operated) -> None:
    listed = await said(operated, "runs", "list", "--all-users", "--user", "eve", "--limit", "150")
    assert all(each in listed for each in (RUN_ID, "eve", "failed", "sql", "4711"))
    assert "bos runs list --all-users --user eve --page next" in listed
    shown = await said(operated, "runs", "show", RUN_ID, "--all-users")
    assert all(each in shown for each in ("1.2", "sql", "failed", "1.5", "Timeout", "of eve"))
    ended = await said(operated, "runs", "cancel", RUN_ID, "--all-users", "--reason", "it hangs")
    assert f"Run {RUN_ID}: cancelled" in ended
    list_, get, cancel = operated.asked
    assert (list_.owner_id, list_.page_size) == ("eve", 100)
    assert get.run_id == cancel.run_id == RUN_ID
    assert cancel.reason == "it hangs"


async def test_as_json_they_are_what_the_gateway_said(operated: Operated) -> None:
    listed = json.loads(await said(operated, "runs", "list", "--all-users", "--json"))
    assert listed["next_page_token"] == "next"
    shown = json.loads(await said(operated, "runs", "show", RUN_ID, "--all-users", "--json"))
    assert shown["steps"][0]["error_type"] == "Timeout"


def test_a_user_is_named_by_operators_alone() -> None:
    done = CliRunner().invoke(main, ["--target", "127.0.0.1:1", "runs", "list", "--user", "eve"])
    assert done.exit_code == 2
    assert "--all-users" in done.output
