"""Result of a tool: text, rows, files and links, within bounds. All of it is content of others."""

from __future__ import annotations

import base64
import binascii
import json
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from mcp.types import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from pydantic import BaseModel, ConfigDict

from bos_chassis.values import make_table
from bos_mcp.server.texts import plain_text

if TYPE_CHECKING:
    from mcp.types import CallToolResult

    from bos.common.v1 import Table
    from bos_agentkit import AgentTask
    from bos_mcp.settings import McpServer

_MAX_BLOCKS = 200
_MAX_COLUMNS = 50
_MAX_CELLS = 50_000
_MAX_DEPTH = 16
_MAX_NODES = 30_000
_MAX_KEY = 200
_MEDIA_TYPE = re.compile(r"[a-z]+/[a-z0-9.+-]{1,80}")
_EXTENSION = re.compile(r"[a-z0-9]{1,8}")
_UNSAFE = re.compile(r"[^A-Za-z0-9._ -]+")


class ToolResult(BaseModel):
    """What a tool returned, as later steps and prompts see it."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    tool: str
    text: str = ""
    structured: Any = None
    """JSON of the result, if it has any and it is no list of objects."""
    rows: list[dict[str, Any]] | None = None
    """The list of objects that the result is."""
    files: list[str] = []
    """Names of the files of the step that came with it."""
    truncated: bool = False
    """Whether something did not fit."""


def result_of(task: AgentTask, tool: str, result: CallToolResult, server: McpServer) -> ToolResult:
    """Take a result over; its images, sounds and resources become files of the step."""
    reading = _Reading(task, tool, server)
    for block in result.content[:_MAX_BLOCKS]:
        reading.take(block)
    found = reading.found
    found.text = reading.text()
    found.truncated = found.truncated or len(result.content) > _MAX_BLOCKS
    value = result.structured_content
    if value is None:
        value = _parsed(found.text)
    if value is None:
        return found
    copied, found.truncated = _bounded(value, found.truncated)
    rows = _rows(copied)
    if rows is None:
        found.structured = copied
    else:
        cells = max(1, max((len(row) for row in rows), default=1))
        most = min(server.max_rows, _MAX_CELLS // cells)
        found.rows, found.truncated = rows[:most], found.truncated or len(rows) > most
    return found


def table_of(result: ToolResult) -> Table | None:
    """Rows as a table, columns in the order of their first occurrence; None without rows."""
    if not result.rows:
        return None
    names = list(dict.fromkeys(name for row in result.rows for name in row))
    columns = names[:_MAX_COLUMNS]
    if not columns:
        return None
    cells = [[row.get(name) for name in columns] for row in result.rows]
    return make_table(columns, cells, truncated=result.truncated or len(names) > len(columns))


def data_of(result: ToolResult) -> dict[str, Any]:
    """Data of the step's result. Rows stand in its table, from which references take them."""
    data: dict[str, Any] = {"tool": result.tool, "truncated": result.truncated}
    if result.rows is None:
        data |= {"text": result.text}
        if result.structured is not None:
            data["structured"] = result.structured
    elif not result.rows:
        data |= {"rows": [], "row_count": 0}
    if result.files:
        data["files"] = result.files
    return data


def error_text(result: CallToolResult) -> str:
    """What a tool says about its failure, plain and on one line."""
    said = " ".join(each.text for each in result.content[:20] if isinstance(each, TextContent))
    return plain_text(said, 500)


class _Reading:
    """Blocks of one result, taken one after another."""

    def __init__(self, task: AgentTask, tool: str, server: McpServer) -> None:
        self._task = task
        self._left = server.max_result_chars
        self._texts: list[str] = []
        self.found = ToolResult(tool=tool)

    def text(self) -> str:
        return "\n\n".join(self._texts)

    def take(self, block: object) -> None:
        match block:
            case TextContent():
                self._add(block.text)
            case ImageContent() | AudioContent():
                self._file("", block.mime_type, block.data)
            case EmbeddedResource(resource=TextResourceContents() as resource):
                self._add(resource.text)
            case EmbeddedResource(resource=BlobResourceContents() as resource):
                self._file(str(resource.uri), resource.mime_type or "", resource.blob)
            case ResourceLink():
                # Named and not fetched: it may lead anywhere.
                title = plain_text(block.title or block.name, 200)
                self._add(f"{title}: {plain_text(str(block.uri), 500)}")
            case _:
                self.found.truncated = True

    def _add(self, text: str) -> None:
        # JSON may hold halves of surrogate pairs, which no message can.
        whole = text.encode("utf-8", "replace").decode()
        if len(whole) > self._left:
            self.found.truncated = True
        if kept := whole[: self._left]:
            self._texts.append(kept)
        self._left -= len(kept)

    def _file(self, uri: str, media_type: str, data: str) -> None:
        kind = media_type.lower().partition(";")[0].strip()
        kind = kind if _MEDIA_TYPE.fullmatch(kind) else "application/octet-stream"
        try:
            content = base64.b64decode(data, validate=True)
            name = self._free_name(uri, kind)
            self._task.attach_file(name, kind, content)
        except (binascii.Error, ValueError):
            self.found.truncated = True
            return
        self.found.files.append(name)

    def _free_name(self, uri: str, kind: str) -> str:
        ending = kind.rpartition("/")[2].partition("+")[0]
        ending = {"jpeg": "jpg", "mpeg": "mp3", "plain": "txt", "octet-stream": "bin"}.get(
            ending, ending
        )
        ending = ending if _EXTENSION.fullmatch(ending) else "bin"
        last = _UNSAFE.sub("_", uri.rstrip("/").rpartition("/")[2])[:100].strip(" .")
        count = len(self._task.files.names) + 1
        name = last or f"{self.found.tool}-{count}.{ending}"
        return name if name not in self._task.files.names else f"{count}-{name}"


def _parsed(text: str) -> Any:
    """JSON of a text that is a list or an object; None for any other."""
    if text[:1] not in ("[", "{"):
        return None
    try:
        return json.loads(text, parse_float=_decimal, parse_constant=lambda _: None)
    except (ValueError, ArithmeticError, RecursionError):
        return None


def _decimal(text: str) -> Decimal | float:
    number = Decimal(text)
    return number if -50 < number.adjusted() < 50 else float(number)


def _rows(value: Any) -> list[dict[str, Any]] | None:
    """The list of objects that a result is or holds alone; servers wrap it in one field."""
    if isinstance(value, dict) and len(value) == 1:
        value = next(iter(value.values()))
    if isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
        return value
    return None


def _bounded(value: Any, truncated: bool) -> tuple[Any, bool]:
    copier = _Copier()
    return copier.copy(value, 0), truncated or copier.cut


class _Copier:
    """Copies JSON within bounds on depth and values."""

    def __init__(self) -> None:
        self.cut = False
        self._left = _MAX_NODES

    def copy(self, value: Any, depth: int) -> Any:
        self._left -= 1
        if self._left < 0 or (isinstance(value, dict | list) and depth >= _MAX_DEPTH):
            self.cut = True
            return None
        match value:
            case str():
                return value.encode("utf-8", "replace").decode()
            case dict():
                return {
                    str(name).encode("utf-8", "replace").decode()[:_MAX_KEY]: self.copy(
                        each, depth + 1
                    )
                    for name, each in self._fitting(value.items())
                }
            case list():
                return [self.copy(each, depth + 1) for each in self._fitting(value)]
            case float() if value != value or value in (float("inf"), float("-inf")):
                return None
            case int() if not isinstance(value, bool) and abs(value) >= 2**63:
                return Decimal(value)
            case _:
                return value

    def _fitting(self, items: Any) -> list[Any]:
        listed = list(items)
        if len(listed) > self._left:
            self.cut = True
        return listed[: max(0, self._left)]
