"""OpenAI's client for Node.js."""

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from .harness import ANSWER, DEPLOYMENT, open_harness

pytestmark = [pytest.mark.rest, pytest.mark.process]

INSTALLED = Path(__file__).parents[3] / ".cache/openai-node"
PROGRAM = Path(__file__).with_name("openai_node") / "walk.mjs"


async def test_the_node_client_asks_streams_resumes_and_approves(
    postgres_dsn: str, tmp_path: Path
) -> None:
    assert INSTALLED.exists(), "install it first: make openai-node"
    (tmp_path / "node_modules").symlink_to(INSTALLED / "node_modules")
    program = shutil.copy(PROGRAM, tmp_path)
    async with open_harness(postgres_dsn, tmp_path) as harness:

        async def plan() -> None:
            question = harness.gateway.planner.requests[-1].question
            harness.plan(DEPLOYMENT if "production" in question else "look it up")

        harness.gateway.planner.before = plan
        process = await asyncio.create_subprocess_exec(
            *("node", str(program), harness.rest_url, harness.token()),
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        printed, _ = await process.communicate()
        assert process.returncode == 0, printed.decode()
        found: dict[str, Any] = json.loads(printed.decode().splitlines()[-1])
        assert harness.agent.landed == {DEPLOYMENT: 1}
    answer = found.pop("answer")
    assert answer.startswith(ANSWER)
    assert "| Ada | 1.50 |" in answer
    assert found == {
        "status": "completed",
        "chunks": answer,
        "usage": [
            "completion_tokens",
            "prompt_tokens",
            "prompt_tokens_details",
            "total_tokens",
        ],
        "resumed": answer,
        "shown": True,
        "approved": found["approved"],
        "refused": [400, "n"],
        "models": ["bos", "bos/deploy"],
    }
    assert found["approved"].startswith(ANSWER)
