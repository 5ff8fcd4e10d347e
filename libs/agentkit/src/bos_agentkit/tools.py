"""Tools of agents: typed async functions that a plan may allow."""

from __future__ import annotations

import inspect
import string
import typing
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from google.protobuf import json_format, struct_pb2
from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from bos.agent.v1 import SideEffectClass, Tool
from bos_chassis.values import render_value, to_value
from bos_errors import FieldViolation, InvalidArgument

REPEATABLE = frozenset(
    {SideEffectClass.SIDE_EFFECT_CLASS_NONE, SideEffectClass.SIDE_EFFECT_CLASS_IDEMPOTENT}
)
"""Classes of calls that may be made again with the same idempotency key."""
_MAX_SUMMARY_ARGUMENT_CHARS = 200


class InjectedParameter:
    """Base of parameter types that are injected and are no arguments of the tool."""

    __slots__ = ()


def tool(
    *,
    description: str,
    requires_approval: bool = False,
    side_effect: SideEffectClass = SideEffectClass.SIDE_EFFECT_CLASS_UNSPECIFIED,
    summary: str = "",
    aliases: Sequence[str] = (),
) -> Callable[[Callable[..., Awaitable[Any]]], AgentTool]:
    """Decorator: make an async function or method with annotated parameters a tool.

    The function's name is the tool's name; the JSON schema of its arguments comes from the
    annotations (``Literal``, defaults and ``Annotated[int, Field(ge=1)]`` included). Annotations
    are evaluated, so their types must be imported at run time and not under ``TYPE_CHECKING``.

    Args:
        description: What it does, written for a model.
        requires_approval: Run only with an approval of the exact arguments; no other setting
            protects a tool.
        side_effect: Class of its side effect; undeclared counts as irreversible.
        summary: What will happen, for the approver, with arguments in braces:
            ``"Send “{subject}” to {to}"``. Without it, tool and arguments are listed.
        aliases: Other names that plans may call it by, such as "CalculatorTool".

    Raises:
        TypeError: the function is not async, or a parameter cannot be described.
    """

    def decorate(function: Callable[..., Awaitable[Any]]) -> AgentTool:
        arguments, context_parameter = _arguments_model(function)
        named = {name for _, name, _, _ in string.Formatter().parse(summary) if name is not None}
        unknown = named - set(arguments.model_fields)
        if unknown:
            raise TypeError(f"summary of {function.__name__} names no parameter: {unknown}")
        card = Tool(
            name=function.__name__,
            description=description,
            input_schema=_schema(arguments),
            requires_approval=requires_approval,
            side_effect=side_effect,
            aliases=aliases,
        )
        return AgentTool(card, function, arguments, context_parameter, summary)

    return decorate


class AgentTool:
    """A tool and its card; call it through ``task.tools``, which checks permission and approval."""

    def __init__(
        self,
        card: Tool,
        function: Callable[..., Awaitable[Any]],
        arguments: type[BaseModel],
        context_parameter: str | None,
        summary: str,
        instance: object = None,
    ) -> None:
        self.card = card
        self._function = function
        self._arguments = arguments
        self._context_parameter = context_parameter
        self._summary = summary
        self._instance = instance
        self.__doc__ = function.__doc__

    def __get__(self, instance: object, owner: type | None = None) -> AgentTool:
        """Bind a method's tool to its object, as functions become bound methods."""
        if instance is None:
            return self
        return AgentTool(
            self.card,
            self._function,
            self._arguments,
            self._context_parameter,
            self._summary,
            instance,
        )

    @property
    def name(self) -> str:
        """Name of the tool, unique within the agent."""
        return self.card.name

    @property
    def has_side_effect(self) -> bool:
        """Whether a call may have a side effect; undeclared counts as yes."""
        return self.card.side_effect != SideEffectClass.SIDE_EFFECT_CLASS_NONE

    @property
    def is_repeatable(self) -> bool:
        """Whether the tool is idempotent."""
        return self.card.side_effect in REPEATABLE

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Validate arguments; returns them converted, with defaults.

        Raises:
            InvalidArgument: names every argument that does not match the tool's schema.
        """
        try:
            model = self._arguments.model_validate(dict(arguments))
        except ValidationError as error:
            violations = [
                FieldViolation(
                    ".".join([self.name, *(str(part) for part in problem["loc"])]), problem["msg"]
                )
                for problem in error.errors(include_url=False, include_input=False)
            ]
            named = "; ".join(f"{v.field}: {v.description}" for v in violations)
            raise InvalidArgument(f"Wrong arguments: {named}", violations) from None
        return {name: getattr(model, name) for name in self._arguments.model_fields}

    def summarise(self, arguments: Mapping[str, Any]) -> str:
        """Describe the call with ``arguments`` to the approver."""
        shown = {name: render_value(to_value(plain(value))) for name, value in arguments.items()}
        if self._summary:
            return self._summary.format_map(shown)
        listed = (f"{k}={v[:_MAX_SUMMARY_ARGUMENT_CHARS]}" for k, v in shown.items())
        return f"{self.name}({', '.join(listed)})"

    async def invoke(self, arguments: Mapping[str, Any], context: InjectedParameter) -> Any:
        """Run the function without permission and approval checks; for ``Toolbox`` and tests."""
        extra = {self._context_parameter: context} if self._context_parameter else {}
        positional = () if self._instance is None else (self._instance,)
        return await self._function(*positional, **arguments, **extra)


def plain(argument: Any) -> Any:
    """A validated argument in types that ``to_value`` takes; pydantic models become maps."""
    if isinstance(argument, BaseModel):
        return argument.model_dump()
    if isinstance(argument, list | tuple):
        return [plain(item) for item in argument]
    if isinstance(argument, dict):
        return {name: plain(item) for name, item in argument.items()}
    return argument


def _arguments_model(
    function: Callable[..., Awaitable[Any]],
) -> tuple[type[BaseModel], str | None]:
    if not inspect.iscoroutinefunction(function):
        raise TypeError(f"{function.__name__} must be async to be a tool")
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"the annotations of {function.__name__} cannot be evaluated: {error}. Import the type "
            "at run time, not under TYPE_CHECKING."
        ) from None
    fields: dict[str, Any] = {}
    context_parameter = None
    for name, parameter in inspect.signature(function).parameters.items():
        if name == "self":
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"{function.__name__}: parameter {name} cannot be passed by name")
        if name not in hints:
            raise TypeError(f"{function.__name__}: parameter {name} has no annotation")
        if isinstance(hints[name], type) and issubclass(hints[name], InjectedParameter):
            context_parameter = name
            continue
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[name] = (hints[name], default)
    config = ConfigDict(extra="forbid", validate_default=True)
    model = create_model(f"{function.__name__}_arguments", __config__=config, **fields)
    return model, context_parameter


def _schema(arguments: type[BaseModel]) -> struct_pb2.Struct:
    schema = arguments.model_json_schema()
    schema.pop("title", None)
    for parameter in schema.get("properties", {}).values():
        parameter.pop("title", None)
    return json_format.ParseDict(schema, struct_pb2.Struct())
