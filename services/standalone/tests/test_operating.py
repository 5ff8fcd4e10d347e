"""`bos audit` and `bos runs erase` in the folder of a running standalone."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from bos_chassis.telemetry import Telemetry
from bos_cli.main import main
from bos_client import BosClient
from bos_demo.dialogues import load_approved
from bos_gateway.operator.commands.audit import audit
from bos_gateway.operator.commands.erasing import erase
from bos_standalone.cli import DEMO_QUESTION
from bos_standalone.service import serve_all
from bos_standalone.settings import StandaloneSettings

pytestmark = pytest.mark.usefixtures("nothing_configured")
(QUESTION,) = load_approved()
SERVICES = ["documents", "files", "gateway", "identity", "memory"]


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


async def ask_for_a_figure(bos: BosClient, context: dict[str, str]) -> str:
    """Ask the demo question whose program makes a file, and approve it; returns the run's id."""
    run_id = ""
    async for event in bos.ask_stream(QUESTION.question, context=context):
        run_id = event.run_id
        if event.HasField("approval_requested"):
            await bos.approve(event.approval_requested.approval.approval_id)
    return run_id


async def test_trails_are_exported_and_a_run_erased_with_its_files(
    tmp_path: Path, started_before: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = StandaloneSettings.load(
        data_dir=started_before(tmp_path / ".data"), grace_s=0.1, rest=False
    )

    async def invoke(command: click.Command, *arguments: str) -> Result:
        result = await asyncio.to_thread(CliRunner().invoke, command, arguments)
        assert result.exit_code == 0, result.output
        return result

    async with serve_all(settings, Telemetry.for_tests("standalone")) as standalone:
        asked = json.loads((await invoke(main, "ask", DEMO_QUESTION, "--json")).stdout)
        assert "22.84 percent" in asked["answer"], "by the date of the sample company"
        async with BosClient(standalone.target, api_key=standalone.api_key) as bos:
            run_id = await ask_for_a_figure(bos, dict(standalone.context))
        found: set[tuple[str, str]] = set()
        async with asyncio.timeout(60):
            while ("gateway", "data.read") not in found:  # sealed within a second or so
                exported = await invoke(audit, "export")
                rows = [json.loads(line) for line in exported.stdout.splitlines()]
                found = {(row["service"], row["action"]) for row in rows if "action" in row}
        verified = await invoke(audit, "verify")

        assert files_in(tmp_path / ".data/artefacts")
        # The artefact store of another deployment, which does not hold files of these runs.
        monkeypatch.setenv("BOS_GATEWAY_ARTEFACTS_URL", (tmp_path / "other").as_uri())
        erased = await invoke(erase, "--run", run_id)
        assert "1 file(s) in the artefact store" in erased.output
        assert not files_in(tmp_path / ".data/artefacts")
    assert {service for service, _ in found} == {*SERVICES}
    assert QUESTION.question not in exported.stdout
    assert [line.partition(":")[0] for line in verified.stdout.splitlines()] == SERVICES
