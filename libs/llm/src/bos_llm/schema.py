"""Structured output: the JSON schema that is sent, and the reading of what comes back."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

T = TypeVar("T", bound=BaseModel)

# Endpoints refuse these in strict mode, or they only repeat what the names say.
_DROPPED = ("default", "title", "discriminator", "examples")
_TYPED = frozenset(("type", "$ref", "anyOf", "oneOf", "allOf", "enum", "const"))
_FENCE = re.compile(r"\A```[A-Za-z0-9_-]*[ \t]*\n(?P<body>.*?)\n?```\Z", re.DOTALL)
_MAX_PROBLEMS = 8
_MAX_PROBLEM_CHARS = 300


class UnusableReply(ValueError):
    """A reply that is not the JSON asked for; its text tells the model what to mend."""


@dataclass(frozen=True, slots=True)
class JsonSchema(Generic[T]):
    """A pydantic model as an endpoint takes it. ``name`` is the class's name."""

    model: type[T]
    name: str
    schema: dict[str, Any]
    strict: bool
    """False if the schema has maps with free keys, which strict mode does not know."""

    @classmethod
    def of(cls, model: type[T]) -> JsonSchema[T]:
        """The schema of ``model``."""
        full = model.model_json_schema()
        strict = _is_closed(full)
        shape = _strict(full, full.get("$defs", {})) if strict else _plain(full)
        return cls(model, model.__name__, shape, strict)

    @property
    def response_format(self) -> dict[str, Any]:
        """The ``response_format`` of a request."""
        return {
            "type": "json_schema",
            "json_schema": {"name": self.name, "schema": self.schema, "strict": self.strict},
        }

    def read(self, text: str) -> T:
        """The value in a reply; a fence of backquotes around the JSON is tolerated.

        Raises:
            UnusableReply: the reply is empty, no JSON, or JSON of another shape.
        """
        content = text.strip()
        if not content:
            raise UnusableReply("the reply was empty")
        fenced = _FENCE.match(content)
        try:
            return self.model.model_validate_json(fenced["body"] if fenced else content)
        except ValidationError as error:
            raise UnusableReply(_describe(error)) from None


def _describe(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    lines = [
        f"{'.'.join(str(part) for part in problem['loc']) or 'the reply'}: "
        f"{problem['msg'][:_MAX_PROBLEM_CHARS]}"
        for problem in found[:_MAX_PROBLEMS]
    ]
    if len(found) > _MAX_PROBLEMS:
        lines.append(f"and {len(found) - _MAX_PROBLEMS} more")
    return "\n".join(lines)


def _is_closed(node: Any) -> bool:
    """Whether every object in ``node`` names all its keys and everything in it has a type."""
    if not isinstance(node, dict) or not _TYPED.intersection(node) or "prefixItems" in node:
        return False
    if node.get("type") == "object" and "properties" not in node:
        return False
    if node.get("additionalProperties", False) is not False:
        return False
    children = [*node.get("properties", {}).values(), *node.get("$defs", {}).values()]
    if node.get("type") == "array":
        children.append(node.get("items"))
    for key in ("anyOf", "oneOf", "allOf"):
        children += node.get(key, ())
    return all(_is_closed(child) for child in children)


def _strict(node: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """``node`` as strict mode wants it: closed objects, everything required, refs alone."""
    node = {key: value for key, value in node.items() if key not in _DROPPED}
    if "$ref" in node and len(node) > 1:
        target = definitions[node["$ref"].rsplit("/", 1)[1]]
        node = {**target, **{key: value for key, value in node.items() if key != "$ref"}}
    result: dict[str, Any] = {}
    for key, value in node.items():
        if key in ("properties", "$defs"):
            result[key] = {name: _strict(child, definitions) for name, child in value.items()}
        elif key in ("anyOf", "oneOf", "allOf"):
            result["anyOf" if key == "oneOf" else key] = [_strict(c, definitions) for c in value]
        elif key == "items":
            result[key] = _strict(value, definitions)
        else:
            result[key] = value
    if "properties" in result:
        result["additionalProperties"] = False
        result["required"] = list(result["properties"])
    return result


def _plain(node: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in node.items() if key != "title"}
