"""`bos demo` and `bos serve`, also after kill -9."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import pytest
from click.testing import CliRunner

from bos.gateway.v1 import RunStatus
from bos_cli.main import main
from bos_demo.company import DEFAULT_TODAY
from bos_demo.scripted.replies import demo_fixtures
from bos_standalone.cli import DEMO_QUESTION
from bos_testkit.processes import PATIENT
from bos_testkit.scripted_model.server import ScriptedModel

from .conftest import Folder

pytestmark = pytest.mark.e2e

CONTEXT = {"current_date": DEFAULT_TODAY.isoformat()}


@pytest.mark.usefixtures("nothing_configured")
def test_bos_demo_answers_its_question_and_exits(
    tmp_path: Path, started_before: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in PATIENT.items():  # or the log would tell of a busy machine
        monkeypatch.setenv(name, value)
    started_before(tmp_path / ".data")
    done = CliRunner().invoke(main, ["demo"])

    assert (done.exit_code, done.stderr) == (0, "")
    assert DEMO_QUESTION in done.stdout
    assert "sql          Find the five customers" in done.stdout
    assert "(after top_customers)" in done.stdout
    assert "✔ top_customers sql succeeded" in done.stdout
    assert "✔ share computation succeeded" in done.stdout
    assert "a share of 22.84 percent" in done.stdout
    assert "13697481.81" in done.stdout
    assert "[1] customers" in done.stdout
    assert (tmp_path / ".data/standalone.log").read_text() == "", "nothing to worry about"


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
                async with folder.serving() as second:
                    async for event in events:
                        kinds.append(event.WhichOneof("event"))
                        if kinds[-1] != "answer_delta":
                            sequences.append(event.sequence)
                    run = await bos.get_run(run_id)

    assert second.returncode == 0, "after SIGTERM"
    assert sequences == sorted(set(sequences))
    assert kinds[-1] == "run_finished"
    assert kinds.count("planned") == 1, "what was done before the kill is not done again"
    assert "run_resumed" in kinds
    assert run.status == RunStatus.RUN_STATUS_SUCCEEDED
    assert run.response.agent_results[1].agent_name == "computation"


@pytest.mark.usefixtures("nothing_configured")
@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        (
            "BOS_DATABASE_URL",
            "sqlite:///shop.db",
            "service mcp_db could not be started: .*BOS_DATABASE_ALLOWED_TABLES",
        ),
        ("OPENAI_BASE_URL", "http://127.0.0.1:1/v1", "BOS_MODEL"),
    ],
)
def test_invalid_settings_fail_the_start_with_service_and_fix(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str
) -> None:
    monkeypatch.setenv("BOS_STORE_URL", postgres_dsn)
    monkeypatch.setenv(variable, value)
    done = CliRunner().invoke(main, ["serve", "all"])
    assert done.exit_code == 78
    assert re.search(said, done.stderr)
