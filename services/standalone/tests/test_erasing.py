"""`bos runs erase` in the folder of a running standalone deletes the files of its runs."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from bos_chassis.telemetry import Telemetry
from bos_client import BosClient
from bos_demo.dialogues import load_approved
from bos_gateway.operator.commands.erasing import erase
from bos_standalone.service import serve_all
from bos_standalone.settings import StandaloneSettings

pytestmark = pytest.mark.usefixtures("nothing_configured")


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


async def ask_for_a_figure(bos: BosClient, context: dict[str, str]) -> str:
    """Ask the demo question whose program makes a file, and approve it; returns the run's id."""
    (question,) = load_approved()
    run_id = ""
    async for event in bos.ask_stream(question.question, context=context):
        run_id = event.run_id
        if event.HasField("approval_requested"):
            await bos.approve(event.approval_requested.approval.approval_id)
    return run_id


async def test_erasing_a_run_of_the_standalone_deletes_its_files(
    tmp_path: Path,
    started_before: Callable[[Path], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = StandaloneSettings.load(
        data_dir=started_before(tmp_path / ".data"), grace_s=0.1, rest=False
    )
    async with serve_all(settings, Telemetry.for_tests("standalone")) as standalone:
        async with BosClient(standalone.target, api_key=standalone.api_key) as bos:
            run_id = await ask_for_a_figure(bos, dict(standalone.context))
        assert files_in(tmp_path / ".data/artefacts")
        # The artefact store of another deployment, which does not hold files of these runs.
        monkeypatch.setenv("BOS_GATEWAY_ARTEFACTS_URL", (tmp_path / "other").as_uri())
        erased = await asyncio.to_thread(CliRunner().invoke, erase, ["--run", run_id])
        assert erased.exit_code == 0, erased.output
        assert "1 file(s) in the artefact store" in erased.output
        assert not files_in(tmp_path / ".data/artefacts")
