"""A task of a remote agent, as it is heard of: by events, by looking at it, or by one message."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from a2a.types import a2a_pb2 as a2a

_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.~:@=+-]{0,255}")
_UNDER_WAY = frozenset(
    {a2a.TASK_STATE_UNSPECIFIED, a2a.TASK_STATE_SUBMITTED, a2a.TASK_STATE_WORKING}
)
_ENDS = frozenset(
    {
        *(a2a.TASK_STATE_COMPLETED, a2a.TASK_STATE_FAILED),
        *(a2a.TASK_STATE_CANCELED, a2a.TASK_STATE_REJECTED),
    }
)
_MAX_ARTIFACTS = 200
_MAX_PARTS = 20_000


class InvalidAnswer(ValueError):
    """An answer of the remote agent that is not A2A."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message to the remote agent."""

    text: str
    message_id: str
    """The same for every attempt at sending it."""
    context_id: str
    """That all messages of one question have."""
    task_id: str = ""
    """Task that it replies to; empty: it begins one."""
    tainted: bool = False
    """Whether it derives from content of others."""
    may_be_there: bool = False
    """Whether an earlier attempt may have sent it."""


@dataclass
class Artifact:
    """One result of a task."""

    name: str = ""
    parts: list[a2a.Part] = field(default_factory=list)
    pieces: bool = False
    """Whether its parts came one after another, so that texts go on without a break."""


class RemoteTask:
    """What was heard of one task."""

    def __init__(self) -> None:
        self.task_id = ""
        self.context_id = ""
        self.state: int = a2a.TASK_STATE_UNSPECIFIED
        self.said: list[a2a.Part] = []
        """Parts of the last status message, or of the message that is the whole answer."""
        self.artifacts: dict[str, Artifact] = {}
        self.truncated = False
        """Whether there were more artifacts or parts than are kept."""
        self.heard = False
        """Whether anything was heard."""

    @property
    def rests(self) -> bool:
        """Whether the task has ended or waits for input."""
        return self.state not in _UNDER_WAY

    @property
    def has_ended(self) -> bool:
        """Whether nothing more can happen."""
        return self.state in _ENDS

    @property
    def said_text(self) -> str:
        """Text of the last status message."""
        return "\n".join(part.text for part in self.said if part.HasField("text"))

    def take(self, event: a2a.StreamResponse) -> None:
        """Take an event of a stream; events of other tasks count for nothing.

        Raises:
            InvalidAnswer: it is no event, or its id cannot be one.
        """
        match event.WhichOneof("payload"):
            case "task":
                self.take_task(event.task)
            case "message":
                self._take_message(event.message)
            case "status_update":
                if self._is_own(event.status_update.task_id, event.status_update.context_id):
                    self._take_status(event.status_update.status)
            case "artifact_update":
                if self._is_own(event.artifact_update.task_id, event.artifact_update.context_id):
                    self._take_artifact(event.artifact_update)
            case _:
                raise InvalidAnswer("an event that holds nothing")
        self.heard = True

    def take_task(self, task: a2a.Task) -> None:
        """Take the whole task as it stands.

        Raises:
            InvalidAnswer: its id cannot be one.
        """
        if not self._is_own(task.id, task.context_id):
            return
        self.heard = True
        pieces = {name for name, artifact in self.artifacts.items() if artifact.pieces}
        self.artifacts = {}
        for artifact in task.artifacts:
            self._keep(artifact, pieces=artifact.artifact_id in pieces)
        self._take_status(task.status)

    def _take_message(self, message: a2a.Message) -> None:
        self.said = list(message.parts[:_MAX_PARTS])
        self.truncated = self.truncated or len(message.parts) > _MAX_PARTS
        self.state = a2a.TASK_STATE_COMPLETED

    def _take_status(self, status: a2a.TaskStatus) -> None:
        self.state = status.state
        self.said = list(status.message.parts[:_MAX_PARTS])

    def _take_artifact(self, update: a2a.TaskArtifactUpdateEvent) -> None:
        known = self.artifacts.get(update.artifact.artifact_id)
        if known is None or not update.append:
            self._keep(update.artifact, pieces=False)
            return
        known.pieces = True
        known.parts.extend(self._fitting(update.artifact.parts))

    def _keep(self, artifact: a2a.Artifact, *, pieces: bool) -> None:
        if artifact.artifact_id not in self.artifacts and len(self.artifacts) >= _MAX_ARTIFACTS:
            self.truncated = True
            return
        self.artifacts.pop(artifact.artifact_id, None)
        parts = self._fitting(artifact.parts)
        self.artifacts[artifact.artifact_id] = Artifact(artifact.name, parts, pieces)

    def _fitting(self, parts: Iterable[a2a.Part]) -> list[a2a.Part]:
        listed = list(parts)
        left = _MAX_PARTS - sum(len(each.parts) for each in self.artifacts.values())
        if len(listed) > left:
            self.truncated = True
        return listed[: max(0, left)]

    def _is_own(self, task_id: str, context_id: str) -> bool:
        """Whether something is said of this task; the first that is heard of is this one."""
        if not self.task_id:
            if not _ID.fullmatch(task_id):
                # It becomes part of addresses.
                raise InvalidAnswer("a task whose id cannot be one")
            self.task_id = task_id
        if task_id == self.task_id and not self.context_id:
            self.context_id = context_id[:256]
        return task_id == self.task_id
