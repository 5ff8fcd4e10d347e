"""Answer of a remote agent: text, rows, files and links, within bounds. All of it is foreign."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pydantic import Field

from bos.common.v1 import Source, SourceType
from bos_agentkit.foreign import ContentReader, ForeignContent, plain_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from a2a.types import a2a_pb2 as a2a
    from google.protobuf.struct_pb2 import Value

    from bos_a2a.remote.tasks import RemoteTask
    from bos_a2a.settings import A2aServer
    from bos_agentkit import AgentTask

_MAX_LINKS = 20
_MAX_URL = 2_000
_MAX_ANSWER = 20_000
_MAX_QUESTION = 4_000
_MAX_EXCERPT = 300
_MAX_DEPTH = 16
_MAX_NODES = 100_000


class AgentAnswer(ForeignContent):
    """What a remote agent answered."""

    message: str
    """The message that it was sent."""
    task: str = ""
    """Id of its task; empty where it answered at once."""
    links: list[dict[str, str]] = Field(default=[])
    """Files that it names: name, url, media_type."""
    question: str = ""
    """What it asks back; empty if it does not."""


def answer_of(task: AgentTask, remote: RemoteTask, message: str, server: A2aServer) -> AgentAnswer:
    """Take an answer over; files in it become files of the step, links are named."""
    reading = _Reading(task, server)
    for artifact in remote.artifacts.values():
        reading.take(artifact.parts, joined=artifact.pieces)
    if not remote.artifacts:
        reading.take(remote.said, joined=False)
    found = reading.content()
    found.truncated = found.truncated or remote.truncated
    return AgentAnswer(message=message, task=remote.task_id, links=reading.links, **dict(found))


def question_of(remote: RemoteTask, name: str) -> str:
    """What the agent asks, plain and on one line."""
    said = plain_text(remote.said_text, _MAX_QUESTION)
    return (
        said
        or f"The remote agent {name} asks for more and does not say what. What should it be sent?"
    )


def shown_answer(answer: AgentAnswer, name: str) -> str:
    """The answer for people."""
    if answer.rows is not None:
        count = len(answer.rows)
        text = f"{name} returned {'one row' if count == 1 else f'{count} rows'}."
    elif answer.text:
        text = answer.text
        text = text if len(text) <= _MAX_ANSWER else f"{text[:_MAX_ANSWER]}…"
    elif answer.structured is not None or answer.files or answer.links:
        text = f"{name} returned data."
    else:
        text = f"{name} has done the task and returned nothing."
    if answer.links:
        text += "\n\n" + "\n".join(f"{link['name']}: {link['url']}" for link in answer.links)
    return text


def sources_of(answer: AgentAnswer, name: str, server: A2aServer) -> list[Source]:
    """The remote agent as a source, and what it links to."""
    own = Source(
        type=SourceType.SOURCE_TYPE_API,
        title=name,
        uri=server.where,
        excerpt=answer.text[:_MAX_EXCERPT],
        reference=f"task {answer.task}" if answer.task else "",
    )
    linked = [
        Source(type=SourceType.SOURCE_TYPE_API, title=link["name"], uri=link["url"])
        for link in answer.links
    ]
    return [own, *linked]


class _Reading:
    """Parts of one answer, taken one after another."""

    def __init__(self, task: AgentTask, server: A2aServer) -> None:
        self._reader = ContentReader(
            task, max_chars=server.max_result_chars, max_rows=server.max_rows, stem="answer"
        )
        self._values: list[Any] = []
        self._nodes = _MAX_NODES
        self.links: list[dict[str, str]] = []

    def take(self, parts: Sequence[a2a.Part], *, joined: bool) -> None:
        """Take the parts of an artifact; ``joined`` texts go on without a break."""
        texts = [part.text for part in parts if part.HasField("text")]
        for text in ["".join(texts)] if joined else texts:
            if text:
                self._reader.add_text(text)
        for part in parts:
            match part.WhichOneof("content"):
                case "data":
                    self._values.append(self._plain(part.data, 0))
                case "raw":
                    self._reader.add_file(part.filename, part.media_type, part.raw)
                case "url":
                    self._link(part)

    def content(self) -> ForeignContent:
        """All that was read."""
        if not self._values:
            return self._reader.content()
        return self._reader.content(self._values[0] if len(self._values) == 1 else self._values)

    def _link(self, part: a2a.Part) -> None:
        """Name a file that is elsewhere; it is not fetched, as it may be anywhere."""
        url = plain_text(part.url, _MAX_URL)
        parts = urlsplit(url) if url == part.url and " " not in url else None
        usable = parts is not None and parts.scheme in ("http", "https") and parts.hostname
        if not usable or len(self.links) >= _MAX_LINKS:
            self._reader.truncated = True
            return
        name = plain_text(part.filename, 200) or "file"
        kind = plain_text(part.media_type, 100)
        self.links.append({"name": name, "url": url, "media_type": kind})

    def _plain(self, value: Value, depth: int) -> Any:
        """JSON as Python has it; what is too deep or too much is left out."""
        self._nodes -= 1
        if self._nodes < 0 or depth > _MAX_DEPTH:
            self._reader.truncated = True
            return None
        match value.WhichOneof("kind"):
            case "number_value":
                number = value.number_value
                return int(number) if number.is_integer() and abs(number) < 2**53 else number
            case "string_value":
                return value.string_value
            case "bool_value":
                return value.bool_value
            case "list_value":
                return [self._plain(each, depth + 1) for each in value.list_value.values]
            case "struct_value":
                fields = value.struct_value.fields
                return {name: self._plain(fields[name], depth + 1) for name in fields}
        return None
