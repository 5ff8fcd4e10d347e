"""A client that a public generator makes from the OpenAPI document, and a program that uses it."""

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from .harness import ANSWER, DEPLOYMENT, ROWS, Harness

pytestmark = [pytest.mark.rest, pytest.mark.process, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[3]
INSTALLED = ROOT / ".cache/generated-client"
PROGRAM = Path(__file__).with_name("generated_client")


async def run(*program: str, cwd: Path) -> str:
    """What a program prints; it must succeed."""
    process = await asyncio.create_subprocess_exec(
        *program,
        cwd=cwd,
        env={"PATH": os.environ["PATH"], "HOME": str(cwd)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await process.communicate()
    assert process.returncode == 0, printed.decode()
    return printed.decode()


async def built(harness: Harness, folder: Path) -> Path:
    """The program with the client that the served document leads to, compiled strictly."""
    assert INSTALLED.exists(), "install it first: make generated-client"
    async with (
        aiohttp.ClientSession() as http,
        http.get(f"{harness.rest_url}/openapi.json") as reply,
    ):
        (folder / "openapi.json").write_text(await reply.text())
    for name in ("walk.ts", "tsconfig.json", "openapi-ts.config.mjs"):
        shutil.copy(PROGRAM / name, folder)
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "node_modules").symlink_to(INSTALLED / "node_modules")
    programs = INSTALLED / "node_modules/.bin"
    await run(str(programs / "openapi-ts"), "--no-log-file", cwd=folder)
    await run(str(programs / "tsc"), "-p", ".", cwd=folder)
    return folder / "walk.js"


async def test_generated_client_asks_streams_approves_and_reads_a_table(
    harness: Harness, tmp_path: Path
) -> None:
    folder = tmp_path / "client"
    folder.mkdir()
    program = await built(harness, folder)
    before = harness.gateway.planner.before

    async def plan() -> None:
        if before is not None:
            await before()
        question = harness.gateway.planner.requests[-1].question
        harness.plan(DEPLOYMENT if "production" in question else "look it up")

    harness.gateway.planner.before = plan
    printed = await run("node", str(program), harness.rest_url, harness.token(), cwd=folder)
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    assert found == {
        "status": "RUN_STATUS_SUCCEEDED",
        "answer": ANSWER,
        "columns": ["name: COLUMN_TYPE_STRING", "amount: COLUMN_TYPE_DECIMAL"],
        "first": ROWS[0],
        "amounts": [row[1] for row in ROWS],
        "streamed": ANSWER,
        "steps": ["a"],
        "waiting": "RUN_STATUS_WAITING_FOR_APPROVAL",
        "shown": ["service=shop-web", "version=1.2"],
        "approved": "RUN_STATUS_SUCCEEDED",
    }
    assert harness.agent.landed == {DEPLOYMENT: 1}
