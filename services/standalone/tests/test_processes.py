"""`bos demo`, `bos serve` and `bos ask` as processes, also after kill -9."""

from __future__ import annotations

import json
import signal
from contextlib import aclosing

import pytest

from bos.gateway.v1 import RunStatus
from bos_demo.company import DEFAULT_TODAY
from bos_demo.scripted.replies import demo_fixtures
from bos_standalone.cli import DEMO_QUESTION
from bos_testkit.processes import PATIENT
from bos_testkit.scripted_model.server import ScriptedModel

from .conftest import Folder, agents_without_settings

pytestmark = pytest.mark.e2e

CONTEXT = {"current_date": DEFAULT_TODAY.isoformat()}


async def test_bos_demo_answers_its_question_and_exits(folder: Folder) -> None:
    folder.environment |= PATIENT  # or the log would tell of a busy machine
    done = await folder.bos("demo")

    assert (done.code, done.err) == (0, "")
    assert DEMO_QUESTION in done.out
    assert "sql          Find the five customers" in done.out
    assert "(after top_customers)" in done.out
    assert "✔ top_customers sql succeeded" in done.out
    assert "✔ share computation succeeded" in done.out
    assert "a share of 22.84 percent" in done.out
    assert "13697481.81" in done.out
    assert "[1] customers" in done.out
    assert (folder.path / ".data/standalone.log").read_text() == "", "nothing to worry about"


async def test_command_line_finds_standalone_and_sends_its_date(
    folder: Folder,
) -> None:
    async with folder.serving() as process:
        asked = await folder.bos("ask", DEMO_QUESTION, "--json")
        agents = await folder.bos("agents")
        runs = await folder.bos("runs", "list")
        refused = await folder.bos("--api-key", "wrong", "agents")
        second = await folder.bos("serve", "all")
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    gone = await folder.bos("agents")

    response = json.loads(asked.out)
    assert response["status"] == "RUN_STATUS_SUCCEEDED"
    assert response["metadata"]["agents"] == ["sql", "computation"]
    assert "22.84 percent" in response["answer"]
    assert agents.out.splitlines()[0] == min(agents_without_settings())
    assert DEMO_QUESTION[:40] in runs.out
    assert refused.code == 2
    assert second.code != 0
    assert f"process {process.pid}" in second.err
    assert gone.code == 3


async def test_killed_standalone_resumes_runs_and_streams_reconnect(
    folder: Folder,
) -> None:
    async with ScriptedModel(demo_fixtures(DEFAULT_TODAY)) as model:
        folder.environment = {"OPENAI_BASE_URL": model.base_url, "BOS_MODEL": "scripted"}
        kinds: list[str | None] = []
        sequences: list[int] = []
        async with folder.serving() as first:
            bos = folder.client()
            async with bos, aclosing(bos.ask_stream(DEMO_QUESTION, context=CONTEXT)) as events:
                async for event in events:
                    kinds.append(event.WhichOneof("event"))
                    if kinds[-1] != "answer_delta":  # deltas have no sequence
                        sequences.append(event.sequence)
                    if kinds[-1] == "planned":
                        model.knobs.latency_s = 60  # keeps the first step running
                    if kinds[-1] == "step_started":
                        break
                run_id = event.run_id
                first.kill()
                await first.wait()
                model.knobs.clear()
                async with folder.serving():
                    async for event in events:
                        kinds.append(event.WhichOneof("event"))
                        if kinds[-1] != "answer_delta":
                            sequences.append(event.sequence)
                    run = await bos.get_run(run_id)

    assert sequences == sorted(set(sequences))
    assert kinds[-1] == "run_finished"
    assert kinds.count("planned") == 1, "what was done before the kill is not done again"
    assert "run_resumed" in kinds
    assert run.status == RunStatus.RUN_STATUS_SUCCEEDED
    assert run.response.agent_results[1].agent_name == "computation"


async def test_invalid_settings_fail_the_start_with_service_and_fix(
    folder: Folder,
) -> None:
    folder.environment = {"BOS_DATABASE_URL": "sqlite:///shop.db"}
    no_list = await folder.bos("serve", "all")
    folder.environment = {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}
    no_model = await folder.bos("serve", "all")
    folder.environment = {}
    no_service = await folder.bos("serve", "nonsense")
    no_target = await folder.bos("serve", "computation")

    assert no_list.code == 78
    assert "service mcp_db could not be started" in no_list.err
    assert "BOS_DATABASE_ALLOWED_TABLES" in no_list.err
    assert no_model.code == 78
    assert "BOS_MODEL" in no_model.err
    assert no_service.code == 2
    assert "gateway" in no_service.err
    assert no_target.code == 78
    assert "BOS_COMPUTATION_SANDBOX_TARGET" in no_target.err
