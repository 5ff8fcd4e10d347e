"""Blocks of the guide, as they stand there, on the whole product with REST."""

import asyncio
import json
import os
import re
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from .rest_harness import BOS, ROOT, RestHarness

PASSWORD = "correct horse battery"

pytestmark = [pytest.mark.e2e, pytest.mark.rest, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(loop_scope="module")
async def http(rest_product: RestHarness) -> AsyncIterator[aiohttp.ClientSession]:
    headers = {"Authorization": f"Bearer {rest_product.key}"}
    async with aiohttp.ClientSession(rest_product.url, headers=headers) as session:
        yield session


async def outputs(folder: Path, lines: list[str]) -> list[str]:
    """What each line prints when the shell runs all of them, one after the other."""
    mark = "=== next line"
    script = "\n".join(f"{line}\nprintf '\\n{mark}\\n'" for line in lines)
    process = await asyncio.create_subprocess_exec(*("sh", "-c", script), cwd=folder, stdout=PIPE)
    printed, _ = await process.communicate()
    return printed.decode().split(f"\n{mark}\n")


def events(text: str) -> list[tuple[str, str]]:
    return re.findall(r"^id: ([\d.]+)\nevent: (\w+)$", text, re.MULTILINE)


@pytest.mark.requirement("A-01")
async def test_the_walk_of_the_readme(rest_product: RestHarness) -> None:
    lines = [line for line in lines_of("REST") if line]
    printed = dict(zip(lines, await outputs(rest_product.folder, lines), strict=False))

    def after(start: str) -> str:
        (found,) = (text for line, text in printed.items() if line.startswith(start))
        return found

    def answer(start: str) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(after(start))
        return parsed

    asked = answer('call $REST/v1/runs:ask -d "$QUESTION"')
    assert asked["status"] == "RUN_STATUS_SUCCEEDED"
    assert "149" in asked["answer"]
    assert events(after("call $REST/v1/runs:askStream"))[0] == ("1", "run_accepted")
    resumed = after("call $REST/v1/runs/$RUN:watch")
    assert events(resumed)[0][0] == "3"
    assert events(resumed)[-1][1] == "run_finished"
    assert "\nevent: done\n" in resumed
    run = answer("call $REST/v1/runs/$RUN  ")
    assert run["response"]["answer"] == asked["answer"], "a dropped stream cancels nothing"
    left = answer('call "$REST/v1/runs/$LEFT?wait=60s')
    assert left["run_id"] != run["run_id"]
    assert left["response"]["answer"] == asked["answer"], "no client followed it"
    assert answer("call $REST/v1/runs/$RUN:cancel")["run_id"] == run["run_id"]
    error = answer('call $REST/v1/runs:ask -d \'{"query"')["error"]
    assert (error["code"], error["status"]) == (400, "INVALID_ARGUMENT")
    assert error["details"][1]["field_violations"][0]["field"] == "query"


REVENUE = {
    "question": "Which five customers brought the most revenue last quarter, "
    "and what share of the total is that?",
    "context": {"current_date": "2026-06-15", "current_datetime_utc": "2026-06-15T12:00:00+00:00"},
    "request_id": "revenue",
}


@pytest.mark.requirement("A-04", "A-24")
async def test_raw_json_is_checked_field_by_field(
    http: aiohttp.ClientSession,
) -> None:
    impossible = (0, -1, 1.5, 2**31, "many", "NaN", [1], {})
    wrong = [(field, value) for field in ("max_rows", "max_columns") for value in impossible]
    wrong += [("context", value) for value in ("today", ["current_date"], 3, True)]
    wrong += [("question", value) for value in (None, 7, ["How many?"], {"text": "How many?"})]
    for field, value in wrong:
        asked = {"question": "How many?", field: value}
        async with http.post("/v1/runs:ask", json=asked) as reply:
            error = (await reply.json())["error"]
        assert (reply.status, error["status"]) == (400, "INVALID_ARGUMENT"), (field, value)
        (violation,) = error["details"][1]["field_violations"]
        assert violation["field"].removeprefix("request.") == field, (value, error)
    asked = {**REVENUE, "request_id": "bounded", "max_rows": "2", "max_columns": 1}
    async with http.post("/v1/runs:ask", json=asked) as reply:
        table = (await reply.json())["data"]
    assert [len(row) for row in table["rows"]] == [1, 1]
    assert len(table["columns"]) == 1
    assert table["truncated"]


def lines_of(heading: str) -> list[str]:
    text = (ROOT / "docs/guide.md").read_text(encoding="utf-8")
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    block = re.search(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert block
    return [line.replace(".venv/bin/bos", str(BOS)) for line in block[1].splitlines()]


async def started(folder: Path, line: str) -> asyncio.subprocess.Process:
    """The line in a shell without a terminal, so that it prompts for nothing."""
    environment = {**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": ""}
    return await asyncio.create_subprocess_exec(
        *("sh", "-c", line), cwd=folder, env=environment, stdin=PIPE, stdout=PIPE
    )


async def output(folder: Path, line: str, typed: str = "") -> str:
    printed, _ = await (await started(folder, line)).communicate(typed.encode())
    return printed.decode()


async def until_asked(folder: Path) -> str:
    async with asyncio.timeout(60):
        while True:
            found: dict[str, Any] = json.loads(await output(folder, f"{BOS} approvals list --json"))
            if found.get("approvals"):
                (approval,) = found["approvals"]
                return str(approval["approval_id"])


def id_behind(word: str, printed: str) -> str:
    """The last id that follows the word, which is that of the outcome."""
    return str(re.findall(rf"{word} ([0-9a-f-]{{36}})", printed)[-1])


async def test_signing_in(rest_product: RestHarness) -> None:
    folder = rest_product.folder
    lines = lines_of("Signing in")
    assert len(lines) <= 5
    register, log_in, who, ask, log_out = lines
    before = json.loads(await output(folder, f"{BOS} runs list --json"))
    for line in (register, log_in):
        # There is no terminal to prompt for it.
        assert "ada" in await output(folder, line.replace("#", "--password-stdin #"), PASSWORD)
    assert "ada" in await output(folder, who)
    assert "\nAnswer\n" in await output(folder, ask)
    assert len(json.loads(await output(folder, f"{BOS} runs list --json"))["runs"]) == 1
    await output(folder, log_out)
    assert json.loads(await output(folder, f"{BOS} runs list --json")) == before


async def test_following_up(rest_product: RestHarness) -> None:
    folder = rest_product.folder
    lines = lines_of("Following up")
    assert len(lines) <= 5
    ask, follow_up, ambiguous, reply = lines
    first = await output(folder, ask)
    conversation = id_behind("conversation", first)
    second = await output(folder, follow_up.replace("CONVERSATION_ID", conversation))
    assert id_behind("conversation", second) == conversation
    assert "\nAnswer\n" in second
    assert second.partition("\nAnswer\n")[2] != first.partition("\nAnswer\n")[2]
    asked_back = await output(folder, ambiguous)
    assert "Pumps" in asked_back
    assert "\u25b6 shift sql" in asked_back
    answered = await output(folder, reply.replace("RUN_ID", id_behind("Run", asked_back)))
    assert "gross margin of pumps, by working days" in answered.partition("\nAnswer\n")[2]


async def test_approving(rest_product: RestHarness) -> None:
    folder = rest_product.folder
    lines = lines_of("Approving")
    assert len(lines) <= 5
    ask, list_them, show, approve = lines
    asking = await started(folder, ask)
    approval_id = await until_asked(folder)
    assert approval_id in await output(folder, list_them)
    shown = await output(folder, show.replace(" ID", f" {approval_id}"))
    assert "savefig" in shown, "the very program"
    decided = await output(folder, approve.replace(" ID", f" {approval_id}"))
    assert decided.strip() == f"Request {approval_id}: approved"
    printed, _ = await asking.communicate()
    assert "approved: chart" in printed.decode()
    assert "\nAnswer\n" in printed.decode()
