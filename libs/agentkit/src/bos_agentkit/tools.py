"""Tools: typed async functions that a plan may allow an agent to call."""

from __future__ import annotations

import inspect
import string
import typing
from typing import TYPE_CHECKING, Any

from google.protobuf import json_format, struct_pb2
from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from bos.agent.v1 import SideEffectClass, Tool
from bos_chassis.values import render_value, to_value
from bos_errors import FieldViolation, InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping


_REPEATABLE = frozenset(
    {SideEffectClass.SIDE_EFFECT_CLASS_NONE, SideEffectClass.SIDE_EFFECT_CLASS_IDEMPOTENT}
)
_MAX_SUMMARY_ARGUMENT_CHARS = 200


class FilledIn:
    """Base of the types of parameters that are filled in, and not asked for."""

    __slots__ = ()


def tool(
    *,
    description: str,
    requires_approval: bool = False,
    side_effect: SideEffectClass = SideEffectClass.SIDE_EFFECT_CLASS_UNSPECIFIED,
    summary: str = "",
) -> Callable[[Callable[..., Awaitable[Any]]], AgentTool]:
    """Make a tool of an async function or method whose parameters are all annotated.

    The function's name is the tool's name; the JSON schema of its arguments comes from the
    annotations (``Literal``, defaults and ``Annotated[int, Field(ge=1)]`` included). Annotations
    are evaluated, so their types must be imported at run time and not under ``TYPE_CHECKING``.

    Args:
        description: What it does, written for a model.
        requires_approval: Run only with a person's approval of the exact arguments. Setting it is
            all it takes to protect a tool.
        side_effect: What it does to the world; undeclared counts as irreversible.
        summary: What will happen, for the person who decides, with arguments in braces:
            ``"Send “{subject}” to {to}"``. Without it, tool and arguments are listed.

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
        )
        return AgentTool(card, function, arguments, context_parameter, summary)

    return decorate


class AgentTool:
    """A tool with its card. Call it through ``task.tools``: that checks permission and approval."""

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
        """Methods become tools of their object, as functions become bound methods."""
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
        """Name, unique within the agent."""
        return self.card.name

    @property
    def has_side_effect(self) -> bool:
        """Whether calling it may change the world; undeclared counts as yes."""
        return self.card.side_effect != SideEffectClass.SIDE_EFFECT_CLASS_NONE

    @property
    def is_repeatable(self) -> bool:
        """Whether calling it twice does no more than calling it once."""
        return self.card.side_effect in _REPEATABLE

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as the function gets them: converted, with defaults filled in.

        Raises:
            InvalidArgument: names every argument that does not fit the tool's schema.
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
        """What calling it with ``arguments`` will do, for the person who decides."""
        shown = {name: render_value(to_value(plain(value))) for name, value in arguments.items()}
        if self._summary:
            return self._summary.format_map(shown)
        listed = (f"{k}={v[:_MAX_SUMMARY_ARGUMENT_CHARS]}" for k, v in shown.items())
        return f"{self.name}({', '.join(listed)})"

    async def invoke(self, arguments: Mapping[str, Any], context: FilledIn) -> Any:
        """Run the function; asks nobody. For ``Toolbox`` and for unit tests of the tool itself."""
        extra = {self._context_parameter: context} if self._context_parameter else {}
        positional = () if self._instance is None else (self._instance,)
        return await self._function(*positional, **arguments, **extra)


def plain(argument: Any) -> Any:
    """A checked argument in the types that values know: pydantic models become maps."""
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
        if isinstance(hints[name], type) and issubclass(hints[name], FilledIn):
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
