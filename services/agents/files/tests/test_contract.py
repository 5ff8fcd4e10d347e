"""Agent contract of the files agent."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bos.agent.v1 import AgentInput, TaskMetadata
from bos_chassis.settings import ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import to_value
from bos_files.service import serve
from bos_files.settings import FilesSettings
from bos_testkit.agent_contract import Rule, Subject, agent_subject, counted, every_rule
from bos_testkit.agent_contract.subject import USER, connected
from bos_testkit.scripted_model.replies import fixture

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
    async with agent_subject(
        *("files", serve, FilesSettings, [NOTE], EXAMPLE),
        telemetry=telemetry,
        environment={f"BOS_FILES_{name.upper()}": value for name, value in where.items()},
        proposing=PROPOSING,
        performed=lambda: counted(telemetry, "bos_files_deleted_total"),
        **where,
    ) as subject:
        await _write_doomed(FilesSettings.load(server=ServerSettings(grace_s=1), **where))
        yield subject


async def _write_doomed(settings: FilesSettings) -> None:
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


@every_rule
async def test_contract(rule: Rule, subject: Subject) -> None:
    await rule(subject)
