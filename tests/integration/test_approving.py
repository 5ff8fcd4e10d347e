"""The block of the README about approving, as it stands there, on the whole product."""

from __future__ import annotations

import asyncio
import json
import re
from asyncio.subprocess import DEVNULL, PIPE
from typing import TYPE_CHECKING, Any

import pytest

from .rest_house import BOS, ROOT, rest_house

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.e2e


def lines_of_the_readme() -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.partition("\n## Approving\n")[2].partition("\n## ")[0]
    block = re.search(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert block
    return [line.replace(".venv/bin/bos", str(BOS)) for line in block[1].splitlines()]


async def started(folder: Path, line: str) -> asyncio.subprocess.Process:
    """The line in a shell without a terminal, so that nobody is asked there."""
    return await asyncio.create_subprocess_exec(
        *("sh", "-c", line), cwd=folder, stdin=DEVNULL, stdout=PIPE
    )


async def output(folder: Path, line: str) -> str:
    printed, _ = await (await started(folder, line)).communicate()
    return printed.decode()


async def until_asked(folder: Path) -> str:
    """The id of the request that waits."""
    async with asyncio.timeout(60):
        while True:
            found: dict[str, Any] = json.loads(await output(folder, f"{BOS} approvals list --json"))
            if found.get("approvals"):
                (approval,) = found["approvals"]
                return str(approval["approval_id"])


async def test_the_block_of_the_readme(tmp_path: Path) -> None:
    lines = lines_of_the_readme()
    assert len(lines) <= 5
    ask, list_them, show, approve = lines
    async with rest_house(tmp_path) as house:
        asking = await started(house.folder, ask)
        approval_id = await until_asked(house.folder)
        assert approval_id in await output(house.folder, list_them)
        shown = await output(house.folder, show.replace(" ID", f" {approval_id}"))
        assert "savefig" in shown, "the very program"
        decided = await output(house.folder, approve.replace(" ID", f" {approval_id}"))
        assert decided.strip() == f"Request {approval_id}: approved"
        told, _ = await asking.communicate()
    assert "approved: chart" in told.decode()
    assert "\nAnswer\n" in told.decode()
