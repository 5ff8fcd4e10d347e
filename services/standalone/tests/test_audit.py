"""`bos audit` in the folder of a running standalone exports the trails of all its services."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from bos_chassis.telemetry import Telemetry
from bos_client import BosClient
from bos_demo.questions import load_questions
from bos_gateway.operator.commands.audit import audit
from bos_standalone.service import serve_all
from bos_standalone.settings import StandaloneSettings

pytestmark = pytest.mark.usefixtures("nothing_configured")


async def test_bos_audit_exports_and_verifies_trails_of_standalone(
    tmp_path: Path,
    started_before: Callable[[Path], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = StandaloneSettings.load(
        data_dir=started_before(tmp_path / ".data"), grace_s=0.1, rest=False
    )
    async with serve_all(settings, Telemetry.for_tests("standalone")) as harness:
        question = load_questions()[0].question
        async with BosClient(harness.target, api_key=harness.api_key) as bos:
            await bos.ask(question, context=harness.context)
        found: set[tuple[str, str]] = set()
        async with asyncio.timeout(60):
            while ("gateway", "data.read") not in found:  # sealed within a second or so
                result = await asyncio.to_thread(CliRunner().invoke, audit, ["export"])
                assert result.exit_code == 0, result.output
                rows = [json.loads(line) for line in result.stdout.splitlines()]
                found = {(row["service"], row["action"]) for row in rows if "action" in row}
        verified = await asyncio.to_thread(CliRunner().invoke, audit, ["verify"])
    assert {service for service, _ in found} == {
        "documents",
        "files",
        "gateway",
        "identity",
        "memory",
    }
    assert question not in result.stdout
    assert verified.exit_code == 0, verified.output
    assert [line.partition(":")[0] for line in verified.stdout.splitlines()] == [
        *("documents", "files", "gateway", "identity", "memory")
    ]
