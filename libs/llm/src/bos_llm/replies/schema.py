"""Structured output: the JSON schema that is sent, and the reading of what comes back."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from bos_llm.replies.form import reply_form
from bos_llm.replies.json_scan import NoJson, find_objects, objects_from_last, parse, unfenced
from bos_llm.replies.mending import mended, unwrapped
from bos_llm.replies.thinking import without_thinking

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bos_llm.replies.wire import Reply

T = TypeVar("T", bound=BaseModel)

# Endpoints refuse these in strict mode, or they only repeat what the names say. Lengths, ranges
# and formats are known to some endpoints only; what breaks them is found when the reply is read.
_DROPPED = frozenset(
    (
        *("default", "title", "discriminator", "examples"),
        *("minLength", "maxLength", "pattern", "format"),
        *("minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    )
)
_TYPED = frozenset(("type", "$ref", "anyOf", "oneOf", "allOf", "enum", "const"))
_MAX_PROBLEMS = 8
_MAX_PROBLEM_CHARS = 300
_MAX_MENDED_CHARS = 60_000
"""No longer text is searched and mended, as that runs between the calls of all others."""
_CUT_OFF = "the reply was cut off by the token limit; be brief"


class UnusableReply(ValueError):
    """A reply that is not the JSON asked for; its text says what the model must mend."""


@dataclass(frozen=True, slots=True)
class JsonSchema(Generic[T]):
    """A pydantic model as an endpoint takes it. ``name`` is the class's name."""

    model: type[T]
    name: str
    schema: dict[str, Any]
    strict: bool
    """False if the schema has maps with free keys, which strict mode does not know."""
    form: str
    """What the reply must look like, in words, for a prompt."""
    full: dict[str, Any] = field(repr=False)
    """As pydantic gives it, with the defaults."""

    @classmethod
    def of(cls, model: type[T]) -> JsonSchema[T]:
        """The schema of ``model``, with the descriptions of fields but not of classes."""
        full = _without_docstrings(model.model_json_schema())
        strict = _is_closed(full)
        shape = _strict(full, full.get("$defs", {})) if strict else _plain(full)
        name = model.__name__
        return cls(model, name, shape, strict, reply_form(name, full), full)

    @property
    def response_format(self) -> dict[str, Any]:
        """The ``response_format`` of a request."""
        return {
            "type": "json_schema",
            "json_schema": {"name": self.name, "schema": self.schema, "strict": self.strict},
        }

    def read_reply(self, reply: Reply) -> T:
        """The value in a reply, wherever the endpoint has put it.

        That is the text, else the arguments of a tool call, else what is said to be thoughts if
        these end in the value. A reply that was cut off counts if the value in it is whole.

        Raises:
            UnusableReply: there is no such value in it.
        """
        cut_off = reply.finish_reason == "length"
        failure: UnusableReply | None = None
        if without_thinking(reply.text).strip():
            try:
                return self._read(reply.text, cut_off=cut_off)
            except UnusableReply as error:
                failure = error
        try:
            if reply.tool_arguments.strip():
                return self._read(reply.tool_arguments, cut_off=cut_off)
            if failure is None and not cut_off and reply.reasoning.strip():
                return self._read_end(reply.reasoning)
        except UnusableReply as error:
            failure = failure or error
        if cut_off:
            raise UnusableReply(_CUT_OFF)
        raise failure or UnusableReply("the reply was empty")

    def read(self, text: str) -> T:
        """The value in a text; what a model wrote around it is tolerated.

        Of several values the last one counts. Slips of form that can mean only one thing are put
        right: see :mod:`bos_llm.replies.json_scan` and :mod:`bos_llm.replies.mending`.

        Raises:
            UnusableReply: the reply is empty, no JSON, or JSON of another shape.
        """
        return self._read(text, cut_off=False)

    def _read(self, text: str, *, cut_off: bool) -> T:
        if not text.strip():
            raise UnusableReply("the reply was empty")
        plain = self._plainly(text)
        if plain is not None:
            return plain
        content = unfenced(without_thinking(text))
        if not content:
            raise UnusableReply("the reply was empty")
        if len(content) > _MAX_MENDED_CHARS:
            raise UnusableReply("the reply is not JSON alone, and far too long")
        try:
            whole = parse(content)
        except NoJson as error:
            no_json = UnusableReply(str(error))
        else:
            return self._first((whole,), tolerant=True)
        # What precedes a reply that breaks off may be an example.
        if cut_off and find_objects(content).broken_off:
            raise no_json
        objects = objects_from_last(content)
        if not objects:
            raise no_json
        return self._first(objects, tolerant=False)

    def _read_end(self, thoughts: str) -> T:
        """The value with which a text ends; one in its middle is only thought about."""
        content = unfenced(without_thinking(thoughts)[-_MAX_MENDED_CHARS:]).rstrip("` \n\r\t")
        if not content.endswith(("}", "]")):
            raise UnusableReply("the reply was empty")
        try:
            return self._first((parse(content),), tolerant=True)
        except NoJson:
            objects = objects_from_last(content)
        if not objects:
            raise UnusableReply("the reply was empty")
        return self._first(objects[:1], tolerant=False)

    def _plainly(self, text: str) -> T | None:
        """The value if the text is nothing else."""
        try:
            value = self.model.model_validate_json(text.strip())
        except ValidationError:
            return None
        # A model of defaults accepts every object; one without a known key may be a wrapper.
        return value if value.model_fields_set or text.strip() == "{}" else None

    def _first(self, values: Iterable[Any], *, tolerant: bool) -> T:
        """The first of ``values`` that fits.

        Args:
            values: What was parsed.
            tolerant: Whether an empty object may stand for all defaults.
        """
        failure: UnusableReply | None = None
        for value in values:
            try:
                return self._validated(unwrapped(value, self.name, self.full), tolerant)
            except UnusableReply as error:
                failure = failure or error
        raise failure or UnusableReply("the reply was empty")

    def _validated(self, value: Any, tolerant: bool) -> T:
        try:
            return self._checked(value, tolerant)
        except UnusableReply:
            return self._checked(mended(value, self.full), tolerant)

    def _checked(self, value: Any, tolerant: bool) -> T:
        try:
            result = self.model.model_validate_json(json.dumps(value))
        except ValidationError as error:
            raise UnusableReply(_describe(error)) from None
        except RecursionError:
            raise UnusableReply("the reply is nested too deeply") from None
        if result.model_fields_set or (tolerant and value == {}):
            return result
        raise UnusableReply("the reply has none of the keys asked for")


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


def _without_docstrings(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema without what its classes say to developers."""
    result = {key: value for key, value in schema.items() if key != "description"}
    if "$defs" in schema:
        result["$defs"] = {
            name: {key: value for key, value in each.items() if key != "description"}
            for name, each in schema["$defs"].items()
        }
    return result
