"""Repairs of the form of a model's reply, where it can mean only one thing.

Nothing is guessed: a value that is missing, or that could be meant in two ways, stays as it is and
fails the validation that follows.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from bos_llm.replies.json_scan import NoJson, parse

_MAX_WRAPPERS = 4
_MAX_DEPTH = 32
_WRAPPERS = frozenset(
    (
        *("answer", "arguments", "data", "input", "json", "output", "parameters"),
        *("properties", "reply", "response", "result", "value"),
    )
)
_CALL = frozenset(("name", "type", "id", "arguments", "parameters"))
_SCHEMA = frozenset(
    ("title", "description", "type", "properties", "required", "additionalProperties")
)
_NOT_IN_NAMES = re.compile(r"[\W_]+")


def unwrapped(value: Any, name: str, schema: dict[str, Any]) -> Any:
    """The reply itself, out of a list, a key or a tool call that a model put it in.

    Args:
        value: What was parsed.
        name: Name of the schema, which models use as a key.
        schema: What the reply should be.
    """
    known = resolved(schema, schema).get("properties", {})
    for _ in range(_MAX_WRAPPERS):
        if isinstance(value, str):
            inner = _parsed(value, "{[")
        elif isinstance(value, list) and len(value) == 1:
            inner = value[0]
        elif isinstance(value, dict) and known and not known.keys() & value.keys():
            inner = _inner(value, name)
        else:
            break
        if not isinstance(inner, dict | list | str):
            break
        value = inner
    return value


def mended(value: Any, schema: dict[str, Any]) -> Any:
    """A parsed reply in the form that ``schema`` asks for, as far as that takes no guess.

    Args:
        value: What was parsed.
        schema: As pydantic gives it, with the defaults.
    """
    return _mend(value, schema, schema, 0)


def resolved(node: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """What a ``$ref`` of a schema stands for; the node itself if it is none."""
    for _ in range(_MAX_WRAPPERS):
        if "$ref" not in node:
            if len(node.get("allOf", ())) != 1:
                break
            node = node["allOf"][0]
            continue
        node = schema.get("$defs", {}).get(node["$ref"].rsplit("/", 1)[1], {})
    return node


def alternatives(node: dict[str, Any], schema: dict[str, Any]) -> list[dict[str, Any]]:
    """What a value may be, apart from null."""
    node = resolved(node, schema)
    options = node.get("anyOf") or node.get("oneOf") or [node]
    return [found for each in options if (found := resolved(each, schema)).get("type") != "null"]


def nullable(node: dict[str, Any], schema: dict[str, Any]) -> bool:
    """Whether a value may be null."""
    node = resolved(node, schema)
    options = node.get("anyOf") or node.get("oneOf") or [node]
    kinds = [resolved(each, schema) for each in options]
    return any(kind.get("type", "null") == "null" and "enum" not in kind for kind in kinds)


def _mend(value: Any, node: dict[str, Any], schema: dict[str, Any], depth: int) -> Any:
    options = alternatives(node, schema)
    if value is None or len(options) != 1 or depth > _MAX_DEPTH:
        return value
    only = options[0]
    kind = only.get("type")
    if "enum" in only:
        return _mend_choice(value, only["enum"])
    if kind == "string":
        return _mend_text(value)
    if kind == "array":
        return _mend_list(value, only, schema, depth)
    if kind == "object" and "properties" in only:
        return _mend_object(value, only, schema, depth)
    return value


def _mend_object(value: Any, node: dict[str, Any], schema: dict[str, Any], depth: int) -> Any:
    fields, required = node["properties"], node.get("required", ())
    if isinstance(value, str):
        inner = _parsed(value, "{")
        texts = [name for name in required if _is_text(fields[name], schema)]
        if not isinstance(inner, dict):
            return {texts[0]: value} if len(texts) == len(required) == 1 and value else value
        value = inner
    if not isinstance(value, dict):
        return value
    result: dict[str, Any] = {}
    for key, inner in _with_known_names(value, fields).items():
        field = fields.get(key)
        if field is None:
            result[key] = inner
        elif inner is not None or key in required or nullable(field, schema):
            result[key] = _mend(inner, field, schema, depth + 1)
    return result


def _mend_list(value: Any, node: dict[str, Any], schema: dict[str, Any], depth: int) -> Any:
    items = node.get("items")
    if not isinstance(items, dict):
        return value
    if isinstance(value, str):
        inner = _parsed(value, "[")
        if isinstance(inner, list):
            value = inner
        elif _is_text(items, schema) or _is_object(items, schema):
            value = [value] if value.strip() else []
    elif isinstance(value, dict) and _is_object(items, schema):
        value = [value]
    if not isinstance(value, list):
        return value
    return [_mend(each, items, schema, depth + 1) for each in value]


def _mend_text(value: Any) -> Any:
    if isinstance(value, bool | int):
        return json.dumps(value)
    return repr(value) if isinstance(value, float) and math.isfinite(value) else value


def _mend_choice(value: Any, choices: list[Any]) -> Any:
    if value in choices or not isinstance(value, str):
        return value
    meant = [each for each in choices if isinstance(each, str) and _bare(each) == _bare(value)]
    return meant[0] if len(meant) == 1 else value


def _with_known_names(value: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    """``value`` with the fields' own names in place of other spellings, such as isClear."""
    missing: dict[str, list[str]] = {}
    for name in fields.keys() - value.keys():
        missing.setdefault(_bare(name), []).append(name)
    strange: dict[str, list[str]] = {}
    for key in value.keys() - fields.keys():
        strange.setdefault(_bare(key), []).append(key)
    names = {
        keys[0]: missing[bare][0]
        for bare, keys in strange.items()
        if len(keys) == 1 and len(missing.get(bare, ())) == 1
    }
    return {names.get(key, key): inner for key, inner in value.items()}


def _inner(value: dict[str, Any], name: str) -> Any:
    """Value of a key that the reply's schema lacks; None if it does not look like a wrapper."""
    if len(value) == 1:
        ((key, inner),) = value.items()
        return inner if _bare(key) == _bare(name) or key.lower() in _WRAPPERS else None
    if "properties" in value and value.keys() <= _SCHEMA:
        return value["properties"]
    if "name" in value and value.keys() <= _CALL:
        return value.get("arguments", value.get("parameters"))
    return None


def _parsed(text: str, openings: str) -> Any:
    if not text.lstrip()[:1] or text.lstrip()[0] not in openings:
        return None
    try:
        return parse(text)
    except NoJson:
        return None


def _is_text(node: dict[str, Any], schema: dict[str, Any]) -> bool:
    options = alternatives(node, schema)
    return len(options) == 1 and options[0].get("type") == "string" and "enum" not in options[0]


def _is_object(node: dict[str, Any], schema: dict[str, Any]) -> bool:
    options = alternatives(node, schema)
    return len(options) == 1 and "properties" in options[0]


def _bare(name: str) -> str:
    return _NOT_IN_NAMES.sub("", name).lower()
