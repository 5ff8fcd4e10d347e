"""Result of a system of others: text, rows, JSON and files, within bounds."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

from pydantic import BaseModel, ConfigDict

from bos.common.v1 import Table
from bos_agentkit.task import AgentTask
from bos_chassis.values import make_table

_MAX_COLUMNS = 50
_MAX_CELLS = 50_000
_MAX_DEPTH = 16
_MAX_NODES = 30_000
_MAX_KEY = 200
_MEDIA_TYPE = re.compile(r"[a-z]+/[a-z0-9.+-]{1,80}")
_EXTENSION = re.compile(r"[a-z0-9]{1,8}")
_UNSAFE = re.compile(r"[^A-Za-z0-9._ -]+")


class ForeignContent(BaseModel):
    """Result of an external system, as later steps and prompts see it."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    text: str = ""
    structured: Any = None
    """JSON of the result, if it has any and it is no list of objects."""
    rows: list[dict[str, Any]] | None = None
    """The list of objects that the result is."""
    files: list[str] = []
    """Names of the files of the step that came with it."""
    truncated: bool = False
    """Whether content was truncated."""

    @property
    def table(self) -> Table | None:
        """Rows as a table, columns in the order of their first occurrence; None without rows."""
        if not self.rows:
            return None
        names = list(dict.fromkeys(name for row in self.rows for name in row))
        columns = names[:_MAX_COLUMNS]
        if not columns:
            return None
        cells = [[row.get(name) for name in columns] for row in self.rows]
        return make_table(columns, cells, truncated=self.truncated or len(names) > len(columns))

    @property
    def data(self) -> dict[str, Any]:
        """Data of the step's result. Rows stand in its table, from which references take them."""
        data: dict[str, Any] = {"truncated": self.truncated}
        if self.rows is None:
            data |= {"text": self.text}
            if self.structured is not None:
                data["structured"] = self.structured
        elif not self.rows:
            data |= {"rows": [], "row_count": 0}
        if self.files:
            data["files"] = self.files
        return data


class ContentReader:
    """Reads one result, part after part; files become files of the step.

    Args:
        task: The step.
        max_chars: Longest text that is kept.
        max_rows: Rows that are kept.
        stem: Beginning of the names of files that have none.
    """

    def __init__(self, task: AgentTask, *, max_chars: int, max_rows: int, stem: str) -> None:
        self._task = task
        self._left = max_chars
        self._max_rows = max_rows
        self._stem = stem
        self._texts: list[str] = []
        self.files: list[str] = []
        self.truncated = False
        """Whether content was truncated; callers set it for what they left out."""

    @property
    def text(self) -> str:
        """The texts so far."""
        return "\n\n".join(self._texts)

    def add_text(self, text: str) -> None:
        """Take a text."""
        # JSON may hold halves of surrogate pairs, which no message can.
        whole = text.encode("utf-8", "replace").decode()
        if len(whole) > self._left:
            self.truncated = True
        if kept := whole[: self._left]:
            self._texts.append(kept)
        self._left -= len(kept)

    def add_file(self, uri: str, media_type: str, content: bytes) -> None:
        """Attach a file to the step, named by the last part of ``uri``, if it may have one more."""
        kind = media_type.lower().partition(";")[0].strip()
        kind = kind if _MEDIA_TYPE.fullmatch(kind) else "application/octet-stream"
        name = self._free_name(uri, kind)
        try:
            self._task.attach_file(name, kind, content)
        except ValueError:
            self.truncated = True
            return
        self.files.append(name)

    def content(self, value: Any = None) -> ForeignContent:
        """All that was read.

        Args:
            value: JSON of the result; None: what its text holds, if that is JSON.
        """
        found = ForeignContent(text=self.text, files=self.files, truncated=self.truncated)
        if value is None:
            value = parsed_json(found.text)
        if value is None:
            return found
        copier = _Copier()
        copied = copier.copy(value, 0)
        found.truncated = found.truncated or copier.cut
        rows = _rows(copied)
        if rows is None:
            found.structured = copied
        else:
            cells = max(1, max((len(row) for row in rows), default=1))
            most = min(self._max_rows, _MAX_CELLS // cells)
            found.rows, found.truncated = rows[:most], found.truncated or len(rows) > most
        return found

    def _free_name(self, uri: str, kind: str) -> str:
        ending = kind.rpartition("/")[2].partition("+")[0]
        ending = {"jpeg": "jpg", "mpeg": "mp3", "plain": "txt", "octet-stream": "bin"}.get(
            ending, ending
        )
        ending = ending if _EXTENSION.fullmatch(ending) else "bin"
        last = _UNSAFE.sub("_", uri.rstrip("/").rpartition("/")[2])[:100].strip(" .")
        count = len(self._task.files.names) + 1
        name = last or f"{self._stem}-{count}.{ending}"
        return name if name not in self._task.files.names else f"{count}-{name}"


def parsed_json(text: str) -> Any:
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
