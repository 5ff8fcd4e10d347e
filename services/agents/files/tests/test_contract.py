"""Agent contract of the files agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bos.agent.v1 import AgentInput, TaskMetadata
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import to_value
from bos_files.service import serve
from bos_files.settings import FilesSettings
from bos_llm import Models
from bos_testkit.agent_contract import Process, Rule, Subject, every_rule, serving
from bos_testkit.agent_contract.subject import USER, connected
from bos_testkit.scripted_model.pytest_fixtures import model_settings
from bos_testkit.scripted_model.replies import fixture
from bos_testkit.scripted_model.server import ScriptedModel

from .conftest import files_settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

TASK = "Write a note that says hello"
EXAMPLE = AgentInput(task=TASK)
NOTE = fixture(
    "note",
    [TASK],
    schema="FileOperation",
    json={"operation": "write_file", "name": "note.txt", "text": "Hello."},
)
DELETE = "Delete the file doomed.txt"
PROPOSING = AgentInput(
    task=DELETE,
    tools=["delete_file"],
    tool_name="delete_file",
    sub_task_input={"name": to_value("doomed.txt")},
)


@pytest.fixture
async def subject(postgres_dsn: str, tmp_path: Path) -> AsyncIterator[Subject]:
    telemetry = Telemetry.for_tests("files")
    where = {"store_url": postgres_dsn, "workspace_url": (tmp_path / "w").as_uri()}
    async with (
        ScriptedModel([NOTE]) as model,
        Models(model_settings(model, max_attempts=1), telemetry) as models,
    ):
        start = serving(serve, FilesSettings, telemetry, models, **where)
        await _write_doomed(postgres_dsn, tmp_path)
        yield Subject(
            name="files",
            example=EXAMPLE,
            model=model,
            serve=start,
            telemetry=telemetry,
            process=Process(
                "bos_files",
                {
                    "BOS_FILES_STORE_URL": postgres_dsn,
                    "BOS_FILES_WORKSPACE_URL": where["workspace_url"],
                },
            ),
            proposing=PROPOSING,
            performed=lambda: _deleted(telemetry),
        )


async def _write_doomed(dsn: str, folder: Path) -> None:
    settings = files_settings(dsn, folder, workspace_url=(folder / "w").as_uri())
    step = AgentInput(
        agent_name="files",
        task="Write it",
        tool_name="write_file",
        sub_task_input={"name": to_value("doomed.txt"), "text": to_value("x")},
        metadata=TaskMetadata(user_id=USER, run_id="r", step_key="r/0/s"),
    )
    async with (
        serve(settings, Telemetry.for_tests("files"), models=None) as server,
        connected(server.address) as client,
    ):
        outcome = await client.execute(step)
    assert outcome.result.data.fields["name"].string_value == "doomed.txt"


def _deleted(telemetry: Telemetry) -> int:
    """How many files were deleted by steps."""
    return int(
        sum(
            sample.value
            for metric in telemetry.registry.collect()
            for sample in metric.samples
            if sample.name == "bos_files_deleted_total"
        )
    )


@every_rule
async def test_contract(rule: Rule, subject: Subject) -> None:
    await rule(subject)
