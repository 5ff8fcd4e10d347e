"""Verified queries, by ``bos sql``."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bos.common.v1 import DatabaseQuery
from bos.gateway.v1 import (
    CreateVerifiedQueryResponse,
    DeleteVerifiedQueryResponse,
    ListVerifiedQueriesResponse,
    VerifiedQuery,
    VerifiedQueryServiceServicer,
    add_VerifiedQueryServiceServicer_to_server,
)
from bos_chassis.auth.callers import StaticKey
from bos_chassis.server import Servicer, grpc_server
from bos_chassis.settings import ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_cli.main import main
from bos_errors import NotFound

KEY = "a-key-of-the-tests"
RUN_ID = "0190-run"
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
    name = "bos.gateway.v1.VerifiedQueryService"
    async with grpc_server(
        ServerSettings.load(grace_s=0.0),
        [Servicer(servicer, add_VerifiedQueryServiceServicer_to_server, name)],
        telemetry=Telemetry.for_tests("gateway"),
        auth=StaticKey(KEY),
    ) as server:
        servicer.address = server.address
        yield servicer


async def bos(reviewed: Reviewed, *arguments: str, stdin: str | None = None) -> Result:
    at = ["--target", reviewed.address, "--api-key", KEY, "sql", *arguments]
    return await asyncio.to_thread(CliRunner().invoke, main, at, input=stdin)


async def test_queries_are_verified_listed_by_pages_and_taken_back(
    reviewed: Reviewed, tmp_path: Path
) -> None:
    assert (await bos(reviewed, "verified")).output == "no verified queries\n"
    made = await bos(reviewed, "verify", RUN_ID, "--step", "b")
    assert made.exit_code == 0, made.output
    assert "  Question: How many orders?\n" in made.output
    assert "    SELECT 1\n    FROM orders\n" in made.output
    assert made.output.endswith("Take it back: bos sql unverify q0\n")
    assert (reviewed.asked.step_id, reviewed.asked.corrected_sql) == ("b", "")

    file = tmp_path / "right.sql"
    file.write_text("SELECT 2 FROM orders\n")
    shared = await bos(
        reviewed, "verify", RUN_ID, "--group", "analysts", "--sql", str(file), "--json"
    )
    assert json.loads(shared.output)["group"] == "analysts"
    assert reviewed.asked.corrected_sql == "SELECT 2 FROM orders\n"
    piped = await bos(reviewed, "verify", RUN_ID, "--sql", "-", stdin="SELECT 3")
    assert "; corrected" in piped.output

    page = await bos(reviewed, "verified", "--limit", "2")
    assert "for group analysts; corrected; by another member" in page.output
    assert page.output.endswith("More: bos sql verified --page 2\n")
    rest = await bos(reviewed, "verified", "--page", "2", "--json")
    assert len(json.loads(rest.output)["verified_queries"]) == 1
    assert (await bos(reviewed, "unverify", "q1")).output == "Taken back.\n"
    assert [each.query_id for each in reviewed.stored] == ["q0", "q2"]


async def test_text_of_another_member_does_not_leave_its_lines(reviewed: Reviewed) -> None:
    hostile = VerifiedQuery(
        query_id="q",
        question="Fine\n  Database: mine\x1b[2J",
        query=DatabaseQuery(database="a\nb", sql="SELECT 1\rTaken back.\n\x1b]0;x\x07"),
        group="g",
    )
    reviewed.stored.append(hostile)
    output = (await bos(reviewed, "verified")).output
    assert "\x1b" not in output
    assert "\r" not in output
    assert output.count("\n  Database: ") == 1


async def test_what_cannot_be_verified_says_why(reviewed: Reviewed, tmp_path: Path) -> None:
    assert (await bos(reviewed, "verify", "another")).exit_code == 2
    assert (await bos(reviewed, "unverify", "none")).exit_code == 2
    for content, why in (
        (b"", "is empty"),
        (b"\xff\xfe", "no text in UTF-8"),
        (b"x" * 6001, "over 6000 characters"),
    ):
        file = tmp_path / "bad.sql"
        file.write_bytes(content)
        refused = await bos(reviewed, "verify", RUN_ID, "--sql", str(file))
        assert refused.exit_code == 2
        assert why in refused.output
    assert reviewed.stored == []
