"""Runs as tasks: states, messages and artifacts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from a2a.types import a2a_pb2 as a2a
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Struct, Value

from bos.gateway.v1 import Approval, OrchestratorResponse, Run, RunStatus
from bos_client import plain_json
from bos_client.text import files_of, outcome_name
from bos_conversation import approval_text, clarification_text
from bos_errors import FailedPrecondition
from bos_protocols.a2a.messages import JSON_MODE, TEXT_MODE

ANSWER, TABLE, FILES = "answer", "table", "files"

STATES: Mapping[RunStatus, a2a.TaskState] = {
    RunStatus.RUN_STATUS_ACCEPTED: a2a.TASK_STATE_SUBMITTED,
    RunStatus.RUN_STATUS_PLANNED: a2a.TASK_STATE_WORKING,
    RunStatus.RUN_STATUS_EXECUTING: a2a.TASK_STATE_WORKING,
    RunStatus.RUN_STATUS_WAITING_FOR_APPROVAL: a2a.TASK_STATE_WORKING,
    RunStatus.RUN_STATUS_COMPOSING: a2a.TASK_STATE_WORKING,
    RunStatus.RUN_STATUS_SUCCEEDED: a2a.TASK_STATE_COMPLETED,
    RunStatus.RUN_STATUS_PARTIALLY_SUCCEEDED: a2a.TASK_STATE_COMPLETED,
    RunStatus.RUN_STATUS_FAILED: a2a.TASK_STATE_FAILED,
    RunStatus.RUN_STATUS_CANCELLED: a2a.TASK_STATE_CANCELED,
    RunStatus.RUN_STATUS_CLARIFICATION_NEEDED: a2a.TASK_STATE_INPUT_REQUIRED,
}
_NAME_IT = (
    "This task has asked before: name this request behind your decision, as in `yes {id}` or "
    "`no {id}`."
)


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a task waits for."""

    approval: Approval
    first: bool
    """Whether the task never asked before, so that a mere word is about this one."""


def context_of(run: Run) -> str:
    """The context of a run's task: its conversation, or itself where there are none."""
    return run.conversation_id or run.run_id


def task_of(run: Run, waiting: Waiting | None, public_url: str) -> a2a.Task:
    """A run as a task, with its artifacts once it has ended."""
    task = a2a.Task(
        id=run.run_id,
        context_id=context_of(run),
        status=status_of(run, waiting),
        history=[_question(run)],
        artifacts=artifacts_of(run.response, public_url) if run.HasField("response") else [],
    )
    about: dict[str, Any] = {"run_status": RunStatus.Name(run.status)}
    if run.continues_run_id:
        about["continues_task_id"] = run.continues_run_id
    if run.HasField("response"):
        about["tainted"] = run.response.tainted
        about["outcome"] = outcome_name(run.response.outcome)
    ParseDict(about, task.metadata)
    return task


def status_of(run: Run, waiting: Waiting | None) -> a2a.TaskStatus:
    """Where a run stands, with what it says to the client."""
    status = a2a.TaskStatus(
        state=STATES.get(run.status, a2a.TASK_STATE_WORKING), timestamp=run.update_time
    )
    if waiting is not None and not run.HasField("response"):
        status.state = a2a.TASK_STATE_INPUT_REQUIRED
        status.message.CopyFrom(_message(run, waiting.approval.approval_id, _shown(waiting)))
    elif parts := _explanation(run):
        status.message.CopyFrom(_message(run, f"{run.run_id}-end", parts))
    return status


def artifacts_of(response: OrchestratorResponse, public_url: str) -> list[a2a.Artifact]:
    """Answer, table and files of a run that was answered."""
    if STATES.get(response.status) != a2a.TASK_STATE_COMPLETED:
        return []
    return [answer_artifact(response.answer, response), *_further(response, public_url)]


def answer_artifact(text: str, response: OrchestratorResponse | None = None) -> a2a.Artifact:
    """A piece of the answer, or all of it; sources and what follows on are its metadata."""
    artifact = a2a.Artifact(artifact_id=ANSWER, name="Answer", parts=[text_part(text)])
    if response is not None:
        about = {
            "sources": [plain_json(source) for source in response.sources],
            "highlights": list(response.highlights),
            "followups": list(response.followups),
        }
        if response.sections:
            about["sections"] = [plain_json(section) for section in response.sections]
        ParseDict(about, artifact.metadata)
    return artifact


def _further(response: OrchestratorResponse, public_url: str) -> list[a2a.Artifact]:
    """The artifacts behind the answer."""
    found: list[a2a.Artifact] = []
    if response.HasField("data") and response.data.columns:
        part = data_part(plain_json(response.data))
        found.append(a2a.Artifact(artifact_id=TABLE, name="Table", parts=[part]))
    parts = [
        a2a.Part(
            url=f"{public_url}/v1/runs/{quote(response.run_id)}/files/"
            f"{quote(file.digest.removeprefix('sha256:'))}",
            filename=file.name,
            media_type=file.media_type,
        )
        for file in files_of(response)
    ]
    if parts:
        found.append(a2a.Artifact(artifact_id=FILES, name="Files", parts=parts))
    return found


def text_part(text: str) -> a2a.Part:
    """A text."""
    return a2a.Part(text=text, media_type=TEXT_MODE)


def data_part(content: Any) -> a2a.Part:
    """JSON."""
    return a2a.Part(data=ParseDict(content, Value()), media_type=JSON_MODE)


def _question(run: Run) -> a2a.Message:
    """What the run was asked, as the client's message."""
    return a2a.Message(
        message_id=run.request_id or run.run_id,
        context_id=context_of(run),
        task_id=run.run_id,
        role=a2a.ROLE_USER,
        parts=[text_part(run.question)],
        reference_task_ids=[run.continues_run_id] if run.continues_run_id else [],
    )


def _message(run: Run, message_id: str, parts: list[a2a.Part]) -> a2a.Message:
    return a2a.Message(
        message_id=message_id,
        context_id=context_of(run),
        task_id=run.run_id,
        role=a2a.ROLE_AGENT,
        parts=parts,
        metadata=Struct(),
    )


def _shown(waiting: Waiting) -> list[a2a.Part]:
    """An approval for people, and the same for programs."""
    approval = waiting.approval
    try:
        texts = [approval_text(approval)]
    except FailedPrecondition as error:
        return [text_part(error.message)]
    if not waiting.first:
        texts.append(_NAME_IT.format(id=approval.approval_id))
    shown = plain_json(approval)
    data = {name: shown[name] for name in ("approval_id", "kind", "agent_name", "display")}
    return [text_part("\n\n".join(texts)), data_part(data)]


def _explanation(run: Run) -> list[a2a.Part]:
    """What a run that ended without an answer says."""
    response = run.response
    if run.status == RunStatus.RUN_STATUS_CLARIFICATION_NEEDED:
        asked = response.clarification
        return [text_part(clarification_text(asked)), data_part(plain_json(asked))]
    if run.status in (RunStatus.RUN_STATUS_FAILED, RunStatus.RUN_STATUS_CANCELLED):
        text = response.answer or response.error.message
        return [text_part(text)] if text else []
    return []
