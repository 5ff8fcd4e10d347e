"""Tools of an MCP server as it lists them: named, classified, bounded, with a digest each."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bos.agent.v1 import SideEffectClass
from bos_agentkit.foreign import plain_text
from bos_mcp.server.schemas import UnusableSchema, reduced

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mcp.types import Tool

    from bos_mcp.settings import McpServer

DEFINITION = "tool_definition"
"""Argument of a proposed call that holds the digest of the tool's definition."""
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_MAX_ORIGINAL_NAME = 128
_MAX_DESCRIPTION = 400
_MAX_DEFINITION_BYTES = 64 * 1024
_MAX_CARD_BYTES = 160 * 1024
_NONE = SideEffectClass.SIDE_EFFECT_CLASS_NONE
_IDEMPOTENT = SideEffectClass.SIDE_EFFECT_CLASS_IDEMPOTENT
_IRREVERSIBLE = SideEffectClass.SIDE_EFFECT_CLASS_IRREVERSIBLE


@dataclass(frozen=True, slots=True)
class Definition:
    """One tool of the server that plans may use."""

    name: str
    """Its name in Bos."""
    original: str
    """Its name at the server."""
    description: str
    """In the server's words, made plain."""
    schema: Mapping[str, Any]
    """Schema of its arguments, reduced."""
    side_effect: SideEffectClass
    open_world: bool
    """Whether a call may reach others than the server, so that its arguments may go anywhere."""
    digest: str
    """"sha256:" and the hex digest of all that the server says of it."""

    @property
    def reads(self) -> bool:
        """Whether a call changes nothing, so that it needs no approval."""
        return self.side_effect == _NONE


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The tools of one listing."""

    tools: Mapping[str, Definition] = field(default_factory=dict)
    """By their names in Bos, in the order of the server."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Why other tools are not offered, by their names, made plain."""


def catalogue_of(listed: Sequence[Tool], server: McpServer) -> Catalogue:
    """The tools of a listing that may be used, as the operator and the limits allow.

    Two tools that would have the same name are both left out: neither may stand in for the other.
    """
    tools: dict[str, Definition] = {}
    left_out: dict[str, str] = {}
    offered = [tool for tool in listed if server.offers(tool.name)]
    names = Counter(tool_name(tool.name) for tool in offered)
    size = 0
    for tool in offered:
        shown = plain_text(tool.name, 80) or "?"
        name = tool_name(tool.name)
        if not name or len(tool.name) > _MAX_ORIGINAL_NAME:
            left_out[shown] = "its name cannot be used"
        elif names[name] > 1:
            left_out[shown] = "another tool has the same name"
        elif len(tools) >= server.max_tools:
            left_out[shown] = "the server has more tools than max_tools"
        else:
            try:
                found = _definition(tool, name, server)
            except UnusableSchema as error:
                left_out[shown] = str(error)
                continue
            size += len(json.dumps(found.schema)) + len(found.description)
            if size > _MAX_CARD_BYTES:
                left_out[shown] = "the descriptions of the tools are too long together"
                continue
            tools[name] = found
    return Catalogue(tools, left_out)


def tool_name(original: str) -> str:
    """Name of a tool in Bos: lower case, words joined by underscores; empty if there is none.

    A name with letters of other alphabets ends with its digest, so that no two of them are alike.
    """
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", original[:_MAX_ORIGINAL_NAME])
    name = re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_")
    name = f"tool_{name}" if name[:1].isdigit() else name
    if any(letter.isalpha() and not letter.isascii() for letter in words):
        name = f"{name or 'tool'}_{hashlib.sha256(original.encode()).hexdigest()[:8]}"
    return name if _NAME.fullmatch(name) else ""


def _definition(tool: Tool, name: str, server: McpServer) -> Definition:
    said = tool.model_dump(mode="json", by_alias=True, exclude_none=True)
    said.pop("_meta", None)
    try:
        text = json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    except (ValueError, RecursionError):
        raise UnusableSchema("its definition is nested too deeply") from None
    if len(text) > _MAX_DEFINITION_BYTES:
        raise UnusableSchema("its definition is too large")
    schema = reduced(tool.input_schema)
    if DEFINITION in schema["properties"]:
        raise UnusableSchema(f"it has an argument named {DEFINITION}")
    return Definition(
        name=name,
        original=tool.name,
        description=plain_text(tool.description or tool.title, _MAX_DESCRIPTION),
        schema=schema,
        side_effect=_side_effect(tool, server),
        open_world=_is_open(tool, server),
        digest=f"sha256:{hashlib.sha256(text.encode()).hexdigest()}",
    )


def _is_open(tool: Tool, server: McpServer) -> bool:
    """Whether arguments may leave the server; assumed unless server or operator deny it."""
    if tool.name in server.reads:
        return False
    hints = tool.annotations
    trusted = hints is not None and server.trust_annotations
    return not (trusted and hints is not None and hints.open_world_hint is False)


def _side_effect(tool: Tool, server: McpServer) -> SideEffectClass:
    """Class by the operator's word, else by the server's where the operator trusts it."""
    if tool.name in server.writes:
        return _IRREVERSIBLE
    if tool.name in server.reads:
        return _NONE
    hints = tool.annotations
    if hints is None or not server.trust_annotations:
        return _IRREVERSIBLE
    if hints.read_only_hint is True:
        return _NONE
    return _IDEMPOTENT if hints.idempotent_hint is True else _IRREVERSIBLE
