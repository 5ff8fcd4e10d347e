"""Executes docs/adding-an-agent.md: writes its files, runs its test, serves its agent."""

from __future__ import annotations

import asyncio
import importlib
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest

from bos.agent.v1 import (
    AgentExecutionStatus,
    AgentInput,
    AgentServiceStub,
    DescribeRequest,
)
from bos_chassis.settings import ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import from_value_map
from bos_llm import Models, ModelSettings
from bos_testkit.agent_contract import RULES
from bos_testkit.agents import call_agent
from bos_testkit.scripted_model.replies import fixture
from bos_testkit.scripted_model.server import ScriptedModel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from types import ModuleType

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "adding-an-agent.md"
MEMBER = Path("services/agents/summary")
FILE_BLOCK = re.compile(r'^```\w+ title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)


def write_files(folder: Path) -> list[Path]:
    """Write every titled block of the page below ``folder``."""
    written = []
    for title, content in FILE_BLOCK.findall(PAGE.read_text()):
        path = folder / title
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        written.append(Path(title))
    return written


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder that holds the files of the page and nothing else."""
    write_files(tmp_path)
    return tmp_path


@pytest.fixture
def service(tree: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The page's ``service.py``, imported from the files of the page."""
    monkeypatch.syspath_prepend(tree / MEMBER / "src")
    try:
        yield importlib.import_module("bos_summary.service")
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "bos_summary"]:
            del sys.modules[name]


@pytest.fixture
async def address(service: ModuleType) -> AsyncIterator[str]:
    settings = importlib.import_module("bos_summary.settings").SummarySettings
    telemetry = Telemetry.for_tests("summary")
    async with (
        ScriptedModel([fixture("any summary", ["### Source Text"], text="Short.")]) as model,
        Models(ModelSettings(base_url=model.base_url, model="scripted"), telemetry) as models,
        service.serve(settings(server=ServerSettings(port=0)), telemetry, models=models) as server,
    ):
        yield server.address


async def run(*command: str, cwd: Path, **environment: str) -> str:
    """Output of a command that must succeed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        *command,
        cwd=cwd,
        env={**os.environ, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output = (await process.communicate())[0].decode()
    assert process.returncode == 0, output
    return output


@pytest.mark.requirement("S-13")
def test_an_agent_touches_its_own_folder_only(tmp_path: Path) -> None:
    written = write_files(tmp_path)
    assert len(written) >= 9
    assert all(path.is_relative_to(MEMBER) for path in written)


@pytest.mark.requirement("S-08", "T-17")
async def test_the_agent_of_the_page_describes_itself(address: str) -> None:
    """The worked example of its card."""
    async with grpc.aio.insecure_channel(address) as channel:
        response = await AgentServiceStub(channel).Describe(DescribeRequest(), timeout=5)
    card = response.card
    assert card.name == "summary"
    assert card.capabilities == ["text_summarisation", "key_point_extraction", "executive_briefing"]
    assert [tool.name for tool in card.tools] == ["summarise_text", "extract_key_points"]
    assert not any(tool.requires_approval for tool in card.tools)
    properties = dict(card.tools[0].input_schema)["properties"]
    assert properties["max_length"]["default"] == 500
    assert list(properties["style"]["enum"]) == ["bullet_points", "paragraph", "executive"]
    assert (card.default_timeout.seconds, card.max_retries) == (30, 2)
    assert len(card.typical_use_cases) == 3


@pytest.mark.requirement("S-05")
async def test_the_agent_of_the_page_does_a_step(address: str) -> None:
    trace, result = await call_agent(
        address, AgentInput(agent_id="summary-1", agent_name="summary_agent", task="Be brief")
    )
    assert result.status == AgentExecutionStatus.AGENT_EXECUTION_STATUS_SUCCEEDED
    assert (result.agent_id, result.agent_name) == ("summary-1", "summary")
    assert from_value_map(result.data)["summary"] == "Short."
    assert [event.message for event in trace] == ["summarise_text"]


@pytest.mark.requirement("S-14", "T-17")
async def test_the_tests_of_the_page_pass(tree: Path) -> None:
    """Its own and the agent contract's, run as their author would."""
    output = await run(
        *("pytest", "-q", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")),
        *("--rootdir", str(tree), str(MEMBER / "tests")),
        cwd=tree,
        PYTHONPATH=os.pathsep.join((str(tree / MEMBER / "src"), os.environ.get("PYTHONPATH", ""))),
    )
    assert re.search(rf"\b{4 + len(RULES)} passed\b", output), output


async def test_the_code_of_the_page_keeps_the_rules_of_the_harness(tree: Path) -> None:
    config = str(ROOT / "pyproject.toml")
    # The configuration's patterns are relative to the repository, hence the same layout below tree.
    await run("ruff", "check", "--no-cache", "--config", config, ".", cwd=tree)
    await run("ruff", "format", "--no-cache", "--check", "--config", config, ".", cwd=tree)
