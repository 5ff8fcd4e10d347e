"""The form of a reply in words, for models that are not shown the schema of the request."""

from __future__ import annotations

import json
import re
from typing import Any

from bos_llm.replies.mending import resolved

_MAX_DEPTH = 8
_WORDS = {
    "string": '"…"',
    "boolean": "true or false",
    "integer": "whole number",
    "number": "number",
    "null": "null",
}
_TEXTS = ('"…"', '"…" or null', '["…"]', '["…"] or null')
_ANY = "any JSON value"
_OR_NULL = re.compile(r",? or null\b[.]?\Z")


def reply_form(name: str, schema: dict[str, Any]) -> str:
    """What a model must know about a reply, to stand at the end of a prompt.

    Args:
        name: What the reply is called.
        schema: As pydantic gives it, with the defaults and the fields' descriptions.
    """
    return (
        f"### Reply\nReply with one JSON object ({name}) and nothing else, in this form:\n"
        f"{_Writer(schema).value(schema, 0)}"
    )


class _Writer:
    """Writes each kind of object out where it comes first, and names that place afterwards."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema
        self._places: dict[int, str] = {}
        self._place = ""

    def value(self, node: dict[str, Any], depth: int) -> str:
        """How a value of ``node`` looks."""
        node = resolved(node, self._schema)
        if options := node.get("anyOf") or node.get("oneOf"):
            written = dict.fromkeys(self.value(each, depth) for each in options)
            return " or ".join(written)
        if "const" in node:
            return _json(node["const"])
        if "enum" in node:
            return " or ".join(map(_json, node["enum"]))
        kind = node.get("type")
        if kind == "array":
            return self._list(node, depth)
        if kind == "object":
            return self._object(node, depth)
        return _WORDS.get(kind or "", _ANY)

    def _list(self, node: dict[str, Any], depth: int) -> str:
        if "prefixItems" in node:
            return f"[{', '.join(self.value(each, depth + 1) for each in node['prefixItems'])}]"
        return f"[{self.value(node.get('items', {}), depth + 1)}]"

    def _object(self, node: dict[str, Any], depth: int) -> str:
        fields = node.get("properties")
        if not fields:
            free = node.get("additionalProperties")
            inner = self.value(free, depth + 1) if isinstance(free, dict) else _ANY
            return f'{{"…": {inner}}}'
        if id(node) in self._places or depth > _MAX_DEPTH:
            return f"{{as in {self._places.get(id(node), 'the above')}}}"
        self._places[id(node)] = _json(self._place) if self._place else "the whole reply"
        separator = ",\n" if depth == 0 else ", "
        written = separator.join(self._field(name, field, depth) for name, field in fields.items())
        return f"{{{written}}}"

    def _field(self, name: str, node: dict[str, Any], depth: int) -> str:
        self._place = name
        written = self.value(node, depth + 1)
        note = " ".join(str(node.get("description", "")).split()).removesuffix(".")
        if written.endswith(" or null"):
            note = _OR_NULL.sub("", note)
        if note and written in _TEXTS:
            # As the text itself it costs a model the least to read.
            written = written.replace("…", note.replace('"', "'") + "…")
        elif note:
            written += f" ({note})"
        return f"{_json(name)}: {written}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
