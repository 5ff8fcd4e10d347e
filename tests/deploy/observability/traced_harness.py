"""A real standalone that was asked the demo questions, and a real collector of its traces."""

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from bos.gateway.v1 import RUN_STATUS_SUCCEEDED, OrchestratorResponse
from bos_chassis.settings import TelemetrySettings
from bos_chassis.telemetry import setup_telemetry
from bos_client import BosClient
from bos_demo.dialogues import load_approved
from bos_demo.questions import load_every_question
from bos_standalone.service import Standalone, serve_all
from bos_standalone.settings import StandaloneSettings

from .real_collector import Collector, real_collector

SETTINGS = re.compile(r"BOS_|OPENAI_|AZURE_|OTEL_|.*_MODEL|.*_TEMPERATURE")
_AT_ONCE = 2
_LONGEST_RUN_S = 240.0
_PAUSE_S = 0.2


@dataclass(frozen=True)
class TracedHarness:
    """Where the parts are."""

    standalone: Standalone
    traces: Collector
    asked: int
    """How many questions were answered before it was handed out."""


@asynccontextmanager
async def open_traced_harness(folder: Path) -> AsyncIterator[TracedHarness]:
    """Start both, and ask one question of each set of agents; stopped with the block."""
    async with real_collector(folder) as collector:
        with pytest.MonkeyPatch.context() as patch:
            for name in [name for name in os.environ if SETTINGS.match(name)]:
                patch.delenv(name)
            patch.setenv("BOS_OTLP_ENDPOINT", collector.endpoint)
            patch.chdir(folder)
            settings = StandaloneSettings.load(data_dir=folder / "data")
            given = TelemetrySettings.load(log_level="error")
            with setup_telemetry("standalone", given) as telemetry:
                async with serve_all(settings, telemetry) as standalone:
                    asked = await _ask_everything(standalone)
                    yield TracedHarness(standalone, collector, asked)


async def _ask_everything(standalone: Standalone) -> int:
    """One question of each set of agents, and one whose program has to be approved; how many."""
    assert standalone.documents is not None
    assert await standalone.documents.ready(400)
    questions = {
        tuple(each.agents): each.question
        for each in load_every_question()
        if each.question in standalone.questions
    }
    places = asyncio.Semaphore(_AT_ONCE)

    async def ask(question: str) -> OrchestratorResponse:
        async with places, asyncio.timeout(_LONGEST_RUN_S):
            async for event in bos.ask_stream(question, context=standalone.context):
                if event.HasField("approval_requested"):
                    await bos.approve(event.approval_requested.approval.approval_id)
                if event.HasField("run_finished"):
                    return event.run_finished.response
        raise AssertionError(f"{question}: no end")

    async with BosClient(standalone.target, api_key=standalone.api_key) as bos:
        async with asyncio.timeout(_LONGEST_RUN_S):
            while True:
                if all(agent.available for agent in await bos.agents()):
                    break
                await asyncio.sleep(_PAUSE_S)
        approved = await ask(load_approved()[0].question)
        assert approved.status == RUN_STATUS_SUCCEEDED, approved
        async with asyncio.TaskGroup() as tasks:
            for question in questions.values():
                tasks.create_task(ask(question))
        return 1 + len(questions)
