"""Tools of an MCP server as tools of the agent: checked by its schema, tied to a digest."""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Any

from google.protobuf import json_format, struct_pb2
from jsonschema import Draft202012Validator, SchemaError
from pydantic import BaseModel
from referencing import Registry

from bos.agent.v1 import Tool
from bos_agentkit import AgentFailure, AgentTool
from bos_chassis.values import to_value
from bos_errors import AgentErrorType, FieldViolation, InvalidArgument
from bos_mcp.server.catalogue import DEFINITION

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from bos_agentkit import ToolContext
    from bos_agentkit.tools import InjectedParameter
    from bos_mcp.results import ToolResult
    from bos_mcp.server.catalogue import Definition

    Call = Callable[[Definition, Mapping[str, Any], ToolContext], Awaitable[ToolResult]]

_MAX_PROBLEMS = 10
_MAX_PROBLEM = 200
_MAX_ARGUMENT_BYTES = 256 * 1024
_MAX_SHOWN_ARGUMENT = 200


class _NoArguments(BaseModel):
    """Arguments are checked by the schema of the server."""


class ServerTool(AgentTool):
    """One tool of the server.

    What is proposed names the digest of the tool's definition, so that an approval holds for the
    definition that was in force when the call was shown.

    Args:
        definition: The tool as the server describes it.
        call: Calls it.
    """

    def __init__(self, definition: Definition, call: Call) -> None:
        self.definition = definition
        self._call = call
        self._validator = Draft202012Validator(dict(definition.schema), registry=Registry())
        super().__init__(_card(definition), self._invoked, _NoArguments, None, "")

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Validate arguments by the reduced schema; the server has the last word.

        Raises:
            AgentFailure: they were approved for another definition of the tool.
            InvalidArgument: names the invalid arguments.
        """
        given = dict(arguments)
        digest = given.pop(DEFINITION, self.definition.digest)
        if digest != self.definition.digest:
            raise changed(self.name)
        plain = _json(self.name, given)
        try:
            problems = self._problems(self._validator.iter_errors(plain))
        except (RecursionError, SchemaError, ArithmeticError):
            raise InvalidArgument.field(self.name, "cannot be checked by its schema") from None
        if problems:
            named = "; ".join(f"{each.field}: {each.description}" for each in problems)
            raise InvalidArgument(f"Wrong arguments: {named}", problems)
        return plain if self.definition.reads else {**plain, DEFINITION: digest}

    def _problems(self, errors: Iterator[Any]) -> list[FieldViolation]:
        return [
            FieldViolation(
                ".".join([self.name, *map(str, each.absolute_path)])[:_MAX_PROBLEM],
                each.message[:_MAX_PROBLEM],
            )
            for each in islice(errors, _MAX_PROBLEMS)
        ]

    def summarise(self, arguments: Mapping[str, Any]) -> str:
        """The call as it will be made, for the approver."""
        shown = (
            f"{name}={json.dumps(value, ensure_ascii=False)[:_MAX_SHOWN_ARGUMENT]}"
            for name, value in arguments.items()
            if name != DEFINITION
        )
        return f"{self.definition.original}({', '.join(shown)})"

    async def invoke(self, arguments: Mapping[str, Any], context: InjectedParameter) -> Any:
        """Call the tool with exactly these arguments."""
        return await self._invoked(arguments, context)

    async def _invoked(self, arguments: Mapping[str, Any], context: Any) -> ToolResult:
        sent = {name: value for name, value in arguments.items() if name != DEFINITION}
        return await self._call(self.definition, sent, context)


def changed(tool: str) -> AgentFailure:
    """The failure of a call that was approved for another definition of its tool."""
    return AgentFailure(
        AgentErrorType.TOOL_CHANGED,
        f"The server changed its tool {tool} since the call was approved, so it was not made. "
        "Ask again to see the call as it would be made now.",
        retryable=False,
    )


def _card(definition: Definition) -> Tool:
    said = definition.description
    return Tool(
        name=definition.name,
        description=f"As the server describes it: “{said}”" if said else "The server says nothing.",
        input_schema=json_format.ParseDict(dict(definition.schema), struct_pb2.Struct()),
        requires_approval=not definition.reads,
        side_effect=definition.side_effect,
    )


def _json(tool: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as JSON has them; numbers of plans may be decimals."""
    try:
        for value in given.values():
            to_value(value)
        text = json.dumps(given, default=_number, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument.field(tool, "an argument has no form in JSON") from error
    if len(text) > _MAX_ARGUMENT_BYTES:
        raise InvalidArgument.field(
            tool, f"the arguments are longer than {_MAX_ARGUMENT_BYTES} bytes"
        )
    plain: dict[str, Any] = json.loads(text)
    return plain


def _number(value: Any) -> Any:
    if hasattr(value, "as_integer_ratio"):
        return int(value) if value == int(value) else float(value)
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
