"""JSON schemas of an MCP server, reduced to what costs little to show and to check.

References are put in place, within a budget; keywords whose check may take unbounded time
(``pattern``, ``uniqueItems``, ``contains``) are left to the server, and so is what lies deeper.
"""

from __future__ import annotations

from typing import Any

from bos_agentkit.foreign import is_plain, plain_text

MAX_NODES = 300
MAX_DEPTH = 8
_MAX_PROPERTIES = 64
_MAX_NAME = 64
_MAX_DESCRIPTION = 160
_MAX_VALUES = 50
_MAX_VALUE = 100
_MAX_HOPS = 8
_TYPES = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})
_NUMBERS = (
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
)
_COUNTS = frozenset(_NUMBERS[5:])
_MAX_NUMBER = 2**53


class UnusableSchema(ValueError):
    """A tool's arguments cannot be described; the text says why."""


def reduced(schema: Any) -> dict[str, Any]:
    """The schema of a tool's arguments, bounded.

    Raises:
        UnusableSchema: it is no schema of an object, or needs an argument that cannot be named.
    """
    if not isinstance(schema, dict):
        raise UnusableSchema("the schema is no object")
    found = _Reducer(schema).schema(schema, 0)
    if found.get("type", "object") != "object":
        raise UnusableSchema("the arguments are no object")
    found["type"] = "object"
    properties = found.setdefault("properties", {})
    if unnamed := [name for name in found.get("required", ()) if name not in properties]:
        raise UnusableSchema(f"{len(unnamed)} required arguments are not described")
    return found


class _Reducer:
    """Copies a schema within a budget of nodes."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._left = MAX_NODES

    def schema(self, given: Any, depth: int) -> dict[str, Any]:
        """A bounded copy; empty, which allows anything, where the budget is used up."""
        self._left -= 1
        given = self._resolved(given)
        if not isinstance(given, dict) or depth > MAX_DEPTH or self._left < 0:
            return {}
        kept: dict[str, Any] = {}
        if kinds := _types(given.get("type")):
            kept["type"] = kinds
        if text := plain_text(given.get("description"), _MAX_DESCRIPTION):
            kept["description"] = text
        for name in _NUMBERS:
            if _is_bound(name, given.get(name)):
                kept[name] = given[name]
        self._values(given, kept)
        self._members(given, kept, depth)
        for name in ("anyOf", "oneOf", "allOf"):
            parts = given.get(name)
            if isinstance(parts, list) and 0 < len(parts) <= _MAX_VALUES:
                kept[name] = [self.schema(each, depth + 1) for each in parts]
        return kept

    def _values(self, given: dict[str, Any], kept: dict[str, Any]) -> None:
        values = given.get("enum")
        if isinstance(values, list) and 0 < len(values) <= _MAX_VALUES and all(map(_shown, values)):
            kept["enum"] = values
        if "const" in given and _shown(given["const"]):
            kept["const"] = given["const"]
        if "default" in given and _shown(given["default"]):
            kept["default"] = given["default"]

    def _members(self, given: dict[str, Any], kept: dict[str, Any], depth: int) -> None:
        properties = given.get("properties")
        if isinstance(properties, dict):
            named = [name for name in properties if is_plain(name, _MAX_NAME)][:_MAX_PROPERTIES]
            kept["properties"] = {name: self.schema(properties[name], depth + 1) for name in named}
            if len(named) == len(properties) and given.get("additionalProperties") is False:
                kept["additionalProperties"] = False
        required = given.get("required")
        if isinstance(required, list) and all(isinstance(each, str) for each in required):
            kept["required"] = list(dict.fromkeys(required))[: _MAX_PROPERTIES + 1]
        others = given.get("additionalProperties")
        if isinstance(others, dict):
            kept["additionalProperties"] = self.schema(others, depth + 1)
        if isinstance(given.get("items"), dict):
            kept["items"] = self.schema(given["items"], depth + 1)

    def _resolved(self, given: Any) -> Any:
        """What a reference within the document leads to; siblings of the reference are kept."""
        for _ in range(_MAX_HOPS):
            if not isinstance(given, dict) or not isinstance(given.get("$ref"), str):
                return given
            siblings = {name: value for name, value in given.items() if name != "$ref"}
            target = self._at(given["$ref"])
            given = {**target, **siblings} if isinstance(target, dict) else siblings
        return {}

    def _at(self, reference: str) -> Any:
        if not reference.startswith("#"):
            return None
        found: Any = self._root
        for part in reference[1:].split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            found = found.get(key) if isinstance(found, dict) else None
        return found


def _types(given: Any) -> str | list[str] | None:
    if isinstance(given, str):
        return given if given in _TYPES else None
    if isinstance(given, list):
        kinds = [each for each in given if isinstance(each, str) and each in _TYPES]
        return kinds if kinds and len(kinds) == len(given) else None
    return None


def _is_bound(name: str, value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if name in _COUNTS:
        return isinstance(value, int) and 0 <= value <= _MAX_NUMBER
    return abs(value) <= _MAX_NUMBER and (name != "multipleOf" or value > 0)


def _shown(value: Any) -> bool:
    """Whether a value of the schema can be shown as it is."""
    if isinstance(value, str):
        return not value or is_plain(value, _MAX_VALUE)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return abs(value) <= _MAX_NUMBER
    return value is None or isinstance(value, bool)
