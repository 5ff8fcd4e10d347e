"""What operators are shown of the runs of others, by ``bos runs … --all-users``."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from click.testing import CliRunner

from bos.agent.v1 import AgentExecutionStatus
from bos.gateway.v1 import (
    CancelUserRunResponse,
    GetUserRunResponse,
    ListUserRunsResponse,
    OperatorServiceServicer,
    RunOverview,
    RunStatus,
    StepOverview,
    add_OperatorServiceServicer_to_server,
)
from bos_chassis.auth.callers import StaticKey
from bos_chassis.server import Servicer, grpc_server
from bos_chassis.settings import ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_cli.main import main

KEY = "a-key-of-the-tests"
RUN_ID = "0190-run"


class Operated(OperatorServiceServicer):
    """A gateway with one run of eve's."""

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
    async with grpc_server(
        ServerSettings.load(grace_s=0.0),
        [
            Servicer(
                servicer,
                add_OperatorServiceServicer_to_server,
                "bos.gateway.v1.OperatorService",
            )
        ],
        telemetry=Telemetry.for_tests("gateway"),
        auth=StaticKey(KEY),
    ) as server:
        servicer.address = server.address
        yield servicer


async def bos(operated: Operated, *arguments: str) -> str:
    at = ["--target", operated.address, "--api-key", KEY]
    done = await asyncio.to_thread(CliRunner().invoke, main, [*at, *arguments])
    assert done.exit_code == 0, done.output
    return done.output


async def test_runs_of_others_are_listed_shown_and_ended(operated: Operated) -> None:
    listed = await bos(operated, "runs", "list", "--all-users", "--user", "eve", "--limit", "150")
    assert all(each in listed for each in (RUN_ID, "eve", "failed", "sql", "4711"))
    assert "bos runs list --all-users --user eve --page next" in listed
    shown = await bos(operated, "runs", "show", RUN_ID, "--all-users")
    assert all(each in shown for each in ("1.2", "sql", "failed", "1.5", "Timeout", "of eve"))
    ended = await bos(operated, "runs", "cancel", RUN_ID, "--all-users", "--reason", "it hangs")
    assert f"Run {RUN_ID}: cancelled" in ended
    list_, get, cancel = operated.asked
    assert (list_.owner_id, list_.page_size) == ("eve", 100)
    assert get.run_id == cancel.run_id == RUN_ID
    assert cancel.reason == "it hangs"


async def test_as_json_they_are_what_the_gateway_said(operated: Operated) -> None:
    listed = json.loads(await bos(operated, "runs", "list", "--all-users", "--json"))
    assert listed["next_page_token"] == "next"
    shown = json.loads(await bos(operated, "runs", "show", RUN_ID, "--all-users", "--json"))
    assert shown["steps"][0]["error_type"] == "Timeout"


def test_a_user_is_named_by_operators_alone() -> None:
    done = CliRunner().invoke(main, ["--target", "127.0.0.1:1", "runs", "list", "--user", "eve"])
    assert done.exit_code == 2
    assert "--all-users" in done.output
