"""Files of a step: attached by the agent, streamed in chunks before the result."""

import hashlib

import grpc
import pytest

from bos.agent.v1 import (
    AgentInput,
    AgentResult,
    AgentServiceStub,
    ExecuteRequest,
    ExecuteResponse,
    FileChunk,
)
from bos_agentkit import AgentTask, awaiting_approval, failed, succeeded
from bos_agentkit.files import MAX_FILE_BYTES, MAX_FILES, MAX_FILES_BYTES
from bos_testkit.agents import RecordingAgent, agent_server
from bos_testkit.deploy import DeployAgent

MIB = 1024 * 1024
BIG = bytes(range(256)) * 10_000


class FilingAgent(RecordingAgent):
    """Attaches two files and then ends as the task demands."""

    async def behave(self, task: AgentTask) -> AgentResult:
        task.attach_file("big.bin", "application/octet-stream", BIG)
        task.attach_file("empty.txt", "text/plain", b"")
        if task.effective_task == "fail":
            return failed(task, type="ProgramFailed", message="It failed.")
        return succeeded(task, answer="done")


async def test_an_attached_file_has_a_reference_by_its_content() -> None:
    task = AgentTask(AgentInput(task="draw"))
    reference = task.attach_file("a.txt", "text/plain", b"x")
    assert reference.digest == f"sha256:{hashlib.sha256(b'x').hexdigest()}"
    found = (reference.name, reference.media_type, reference.size_bytes)
    assert found == ("a.txt", "text/plain", 1)


class FilingDeployer(DeployAgent):
    """Attaches a file although it only proposes."""

    async def behave(self, task: AgentTask) -> AgentResult:
        task.attach_file("a.txt", "text/plain", b"x")
        arguments = {"service": "shop", "version": "1"}
        return awaiting_approval(task, [task.tools.propose("trigger_deployment", arguments)])


async def messages(agent: RecordingAgent, input: AgentInput) -> list[ExecuteResponse]:
    async with agent_server(agent) as address, grpc.aio.insecure_channel(address) as channel:
        call = AgentServiceStub(channel).Execute(ExecuteRequest(input=input), timeout=30)
        return [message async for message in call]


@pytest.mark.parametrize("task", ["succeed", "fail"])
async def test_files_come_in_chunks_before_the_one_result(task: str) -> None:
    received = await messages(FilingAgent("filing"), AgentInput(task=task))
    chunks = [message.file for message in received if message.HasField("file")]
    assert received[-1].HasField("result")
    assert [message.WhichOneof("payload") for message in received].count("result") == 1
    assert [(chunk.name, len(chunk.content), chunk.last) for chunk in chunks] == [
        ("big.bin", MIB, False),
        ("", MIB, False),
        ("", len(BIG) - 2 * MIB, True),
        ("empty.txt", 0, True),
    ]
    assert b"".join(chunk.content for chunk in chunks) == BIG
    assert chunks[-1] == FileChunk(name="empty.txt", media_type="text/plain", last=True)


async def test_a_proposal_has_no_files() -> None:
    received = await messages(
        FilingDeployer(), AgentInput(task="deploy", tools=["trigger_deployment"])
    )
    assert [m.WhichOneof("payload") for m in received if m.HasField("file")] == []
    assert received[-1].result.proposed_actions


@pytest.mark.parametrize(
    ("name", "media_type", "size"),
    [
        ("", "text/plain", 1),
        ("a/b", "text/plain", 1),
        ("\udc80", "text/plain", 1),
        ("a", "text", 1),
        ("a", "text/plain", MAX_FILE_BYTES + 1),
    ],
)
def test_an_invalid_file_is_refused(name: str, media_type: str, size: int) -> None:
    with pytest.raises(ValueError, match=r"file|media type"):
        AgentTask(AgentInput(task="x")).attach_file(name, media_type, bytes(size))


def test_number_and_total_size_are_limited() -> None:
    many = AgentTask(AgentInput(task="x"))
    for number in range(MAX_FILES):
        many.attach_file(str(number), "text/plain", b"x")
    with pytest.raises(ValueError, match="16 files"):
        many.attach_file("one more", "text/plain", b"")

    large = AgentTask(AgentInput(task="x"))
    large.attach_file("a", "text/plain", bytes(MAX_FILE_BYTES))
    large.attach_file("b", "text/plain", bytes(MAX_FILES_BYTES - MAX_FILE_BYTES))
    with pytest.raises(ValueError, match="bytes"):
        large.attach_file("c", "text/plain", b"x")
    assert large.files.names == ["a", "b"]
