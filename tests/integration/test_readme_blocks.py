"""Blocks of the guide about people, as they stand there, on the whole product."""

import asyncio
import json
import os
import re
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import pytest

from .rest_harness import BOS, ROOT, RestHarness

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

PASSWORD = "correct horse battery"


@pytest.fixture(scope="module")
def folder(rest_product: RestHarness) -> Path:
    """Where `bos` finds the product running."""
    return rest_product.folder


def lines_of(heading: str) -> list[str]:
    """The first block of that section."""
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
    """The id of the request that waits."""
    async with asyncio.timeout(60):
        while True:
            found: dict[str, Any] = json.loads(await output(folder, f"{BOS} approvals list --json"))
            if found.get("approvals"):
                (approval,) = found["approvals"]
                return str(approval["approval_id"])


def id_behind(word: str, printed: str) -> str:
    """The last id that follows the word, which is that of the outcome."""
    return str(re.findall(rf"{word} ([0-9a-f-]{{36}})", printed)[-1])


async def test_signing_in(folder: Path) -> None:
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


async def test_following_up(folder: Path) -> None:
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


async def test_approving(folder: Path) -> None:
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
