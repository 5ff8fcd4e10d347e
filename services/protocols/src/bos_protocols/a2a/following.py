"""What happens to a run, as updates of its task."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from a2a.types import a2a_pb2 as a2a

from bos_client.text import one_line
from bos_protocols.a2a.approvals import approvals_of, waits_for
from bos_protocols.a2a.tasks import (
    ANSWER,
    Waiting,
    answer_artifact,
    artifacts_of,
    context_of,
    status_of,
    text_part,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from bos.gateway.v1 import Run, RunEvent, StepStartedEvent
    from bos_client import BosClient

    Update = a2a.TaskStatusUpdateEvent | a2a.TaskArtifactUpdateEvent

_MAX_STEP_CHARS = 500


async def waiting_of(bos: BosClient, run: Run) -> Waiting | None:
    """What a run waits for, if it does."""
    approval = await waits_for(bos, run)
    if approval is None:
        return None
    return Waiting(approval, first=len(await approvals_of(bos, run)) == 1)


async def follow(bos: BosClient, run: Run, public_url: str) -> AsyncGenerator[Update, None]:
    """Updates behind what ``run`` shows, until it ends or asks a person for a decision.

    The text of the answer comes whole, however late one begins: its first piece replaces what the
    client had, the others are appended. A lost connection to the gateway shows in none of it.
    """
    text = ""
    async with aclosing(bos.watch(run.run_id, run.last_sequence)) as events:
        async for event in events:
            if event.HasField("answer_started"):
                text = ""
            elif event.HasField("answer_delta"):
                yield _piece(run, event.answer_delta.text, append=bool(text))
                text += event.answer_delta.text
            elif event.HasField("approval_requested"):
                if asking := await _asks(bos, run.run_id):
                    yield asking
                    return
            elif event.HasField("run_finished"):
                break
            elif (status := _progress(run, event)) is not None:
                yield status
    ended = await bos.get_run(run.run_id)
    for update in _end(ended, text, public_url):
        yield update


async def _asks(bos: BosClient, run_id: str) -> a2a.TaskStatusUpdateEvent | None:
    """What the run waits for; None if that was decided elsewhere by now."""
    run = await bos.get_run(run_id)
    waiting = await waiting_of(bos, run)
    return None if waiting is None else _status(run, status_of(run, waiting))


def _end(run: Run, text: str, public_url: str) -> Iterator[Update]:
    """The artifacts, without the text that has been sent, and the last status."""
    for artifact in artifacts_of(run.response, public_url):
        known = artifact.artifact_id == ANSWER and text == artifact.parts[0].text != ""
        if known:
            artifact.parts[0].text = ""
        yield a2a.TaskArtifactUpdateEvent(
            task_id=run.run_id,
            context_id=context_of(run),
            artifact=artifact,
            append=known,
            last_chunk=True,
        )
    yield _status(run, status_of(run, None))


def _piece(run: Run, text: str, append: bool) -> a2a.TaskArtifactUpdateEvent:
    return a2a.TaskArtifactUpdateEvent(
        task_id=run.run_id,
        context_id=context_of(run),
        artifact=answer_artifact(text),
        append=append,
    )


def _progress(run: Run, event: RunEvent) -> a2a.TaskStatusUpdateEvent | None:
    """What is going on, where it is worth a word."""
    status = a2a.TaskStatus(state=a2a.TASK_STATE_WORKING, timestamp=event.create_time)
    if event.HasField("step_started"):
        status.message.CopyFrom(_step(run, event.sequence, event.step_started))
    elif not (event.HasField("planned") or event.HasField("approval_resolved")):
        return None
    return _status(run, status)


def _step(run: Run, sequence: int, started: StepStartedEvent) -> a2a.Message:
    return a2a.Message(
        message_id=f"{run.run_id}-{sequence}",
        context_id=context_of(run),
        task_id=run.run_id,
        role=a2a.ROLE_AGENT,
        parts=[text_part(f"{started.agent_name}: {one_line(started.task, _MAX_STEP_CHARS)}")],
    )


def _status(run: Run, status: a2a.TaskStatus) -> a2a.TaskStatusUpdateEvent:
    return a2a.TaskStatusUpdateEvent(task_id=run.run_id, context_id=context_of(run), status=status)
