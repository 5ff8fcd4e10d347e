"""A chat at the terminal that others wrote for OpenAI's API: ``llm``, as it comes."""

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from .harness import ANSWER, DEPLOYMENT, QUESTION_BACK, Harness, open_harness

pytestmark = [pytest.mark.rest, pytest.mark.process]

LLM = Path(__file__).parents[3] / ".cache/front-end/bin/llm"


@dataclass
class FrontEnd:
    """The program with its settings and its log of what was said."""

    harness: Harness
    folder: Path

    async def say(self, *words: str) -> str:
        """What it prints."""
        process = await asyncio.create_subprocess_exec(
            *(str(LLM), *words, "--key", self.harness.token()),
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.folder),
                "LLM_USER_PATH": str(self.folder),
            },
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        printed, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
        return printed.decode()


@pytest.fixture
async def front_end(postgres_dsn: str, tmp_path: Path) -> AsyncIterator[FrontEnd]:
    assert LLM.exists(), "install it first: make front-end"
    async with open_harness(postgres_dsn, tmp_path) as harness:
        (tmp_path / "extra-openai-models.yaml").write_text(
            f"- {{model_id: bos, model_name: bos, api_base: '{harness.rest_url}/v1', "
            "api_key_name: bos}\n"
        )
        yield FrontEnd(harness, tmp_path)


async def test_it_asks_and_shows_the_table(front_end: FrontEnd) -> None:
    printed = await front_end.say("-m", "bos", "Who brought what?")
    assert printed.startswith(ANSWER)
    assert "| Ada | 1.50 |" in printed


@pytest.mark.parametrize("streams", [True, False])
async def test_its_next_turn_approves(front_end: FrontEnd, streams: bool) -> None:
    front_end.harness.plan(DEPLOYMENT)
    how = [] if streams else ["--no-stream"]
    shown = await front_end.say(*how, "-m", "bos", "Put it into production")
    assert "trigger_deployment" in shown
    assert not front_end.harness.agent.landed
    assert ANSWER in await front_end.say(*how, "-c", "yes")
    assert front_end.harness.agent.landed == {DEPLOYMENT: 1}


async def test_its_next_turn_settles_what_is_asked_back(front_end: FrontEnd) -> None:
    front_end.harness.ask_back()
    assert QUESTION_BACK in await front_end.say("-m", "bos", "Who brought what?")
    assert ANSWER in await front_end.say("-c", "2026")
    (settled,) = front_end.harness.gateway.planner.requests[-1].clarifications
    assert settled.reply == "2026"
