"""REST in front of the whole product: the walk that the guide shows, line by line."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from .rest_harness import ROOT, rest_harness

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.rest]


def walk_of_the_readme() -> list[str]:
    text = (ROOT / "docs/guide.md").read_text(encoding="utf-8")
    section = text.partition("\n## REST\n")[2].partition("\n## ")[0]
    block = re.search(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert block
    return [line for line in block[1].splitlines() if line]


async def outputs(folder: Path, lines: list[str]) -> list[str]:
    """What each line prints when the shell runs all of them, one after the other."""
    mark = "=== next line"
    script = "\n".join(f"{line}\nprintf '\\n{mark}\\n'" for line in lines)
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", script), cwd=folder, stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await process.communicate()
    return printed.decode().split(f"\n{mark}\n")


def events(text: str) -> list[tuple[str, str]]:
    return re.findall(r"^id: ([\d.]+)\nevent: (\w+)$", text, re.MULTILINE)


async def test_the_walk_of_the_readme(tmp_path: Path) -> None:
    lines = walk_of_the_readme()
    async with rest_harness(tmp_path) as harness:
        printed = dict(zip(lines, await outputs(harness.folder, lines), strict=False))

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
    assert answer("call $REST/v1/runs/$RUN:cancel")["run_id"] == run["run_id"]
    error = answer('call $REST/v1/runs:ask -d \'{"query"')["error"]
    assert (error["code"], error["status"]) == (400, "INVALID_ARGUMENT")
    assert error["details"][1]["field_violations"][0]["field"] == "query"
