"""Outlines of JSON schemas, and references resolved inside one document, within bounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

_MAX_REFERENCES = 16
"""References that lead to one another before the chain counts as endless."""
_MAX_DEPTH = 4
_MAX_FIELDS = 40
_MAX_VALUES = 12
_MAX_OUTLINE_CHARS = 1_500
_MAX_LOOKUPS = 100_000


@dataclass
class Document:
    """An OpenAPI document; references resolve within it alone.

    Args:
        root: The parsed document.
    """

    root: dict[str, Any]
    external: set[str] = field(default_factory=set)
    """References to other documents, which are never followed."""
    broken: set[str] = field(default_factory=set)
    """References that lead nowhere or in a circle."""
    _lookups: int = 0

    def resolve(self, node: Any) -> dict[str, Any]:
        """``node``, or what its ``$ref`` leads to; empty where that is no object."""
        seen: set[str] = set()
        while isinstance(node, dict) and isinstance(node.get("$ref"), str):
            reference = node["$ref"]
            self._lookups += 1
            if not reference.startswith("#"):
                self.external.add(reference[:200])
                return {}
            too_many = len(seen) >= _MAX_REFERENCES or self._lookups > _MAX_LOOKUPS
            if reference in seen or too_many:
                self.broken.add(reference[:200])
                return {}
            seen.add(reference)
            node = self._at(reference)
        return node if isinstance(node, dict) else {}

    def _at(self, reference: str) -> Any:
        node: Any = self.root
        for part in reference.removeprefix("#").split("/")[1:]:
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(node, list) and name.isdecimal() and int(name[:6]) < len(node):
                node = node[int(name[:6])]
            elif isinstance(node, dict) and name in node:
                node = node[name]
            else:
                self.broken.add(reference[:200])
                return None
        return node


def outline(document: Document, schema: Any) -> str:
    """Short text of a JSON schema for prompts, such as ``{sku*: text, lines: [{quantity}]}``.

    A star marks required fields. Depth, fields and length are bounded; recursion shows as ``…``.
    """
    text = _outlined(document, schema, 0)
    return text if len(text) <= _MAX_OUTLINE_CHARS else f"{text[:_MAX_OUTLINE_CHARS]}…"


def _outlined(document: Document, schema: Any, depth: int) -> str:
    if depth > _MAX_DEPTH:
        return "…"
    found = document.resolve(schema)
    if not found:
        return "any"
    for keyword, joint in (("allOf", " & "), ("oneOf", " | "), ("anyOf", " | ")):
        parts = found.get(keyword)
        if isinstance(parts, list) and parts:
            shown = [_outlined(document, part, depth + 1) for part in parts[:_MAX_VALUES]]
            return joint.join(dict.fromkeys(shown))
    if "const" in found:
        return _scalar(found["const"])
    values = found.get("enum")
    if isinstance(values, list) and values:
        return "|".join(map(_scalar, values[:_MAX_VALUES]))
    return _by_type(document, found, depth)


def _by_type(document: Document, found: dict[str, Any], depth: int) -> str:
    properties, required = found.get("properties"), found.get("required")
    if isinstance(properties, dict):
        must = set(map(str, required)) if isinstance(required, list) else set()
        fields = [
            f"{_scalar(name)}{'*' if name in must else ''}: {_outlined(document, each, depth + 1)}"
            for name, each in list(properties.items())[:_MAX_FIELDS]
        ]
        more = ", …" if len(properties) > _MAX_FIELDS else ""
        return "{" + ", ".join(fields) + more + "}"
    if "items" in found:
        return f"[{_outlined(document, found['items'], depth + 1)}]"
    kinds = found.get("type", "any")
    named = [_scalar(kind) for kind in kinds] if isinstance(kinds, list) else [_scalar(kinds)]
    form = found.get("format")
    return "|".join(named[:_MAX_VALUES]) + (f" ({_scalar(form)})" if form else "")


def _scalar(value: Any) -> str:
    return " ".join(str(value).split())[:80] if not isinstance(value, dict | list) else "…"
