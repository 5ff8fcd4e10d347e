"""Schema of the planning model's reply and of stored plans, with lenient parsing.

Small models leave out fields and write values in the wrong shape; an unambiguous reply is accepted,
which saves a second call.
"""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any, Literal, NoReturn

from pydantic import BaseModel, Field, field_validator, model_validator

from bos_chassis.values import to_value

IntentName = Literal["DATA_QA", "ANALYTICS_REPORT", "GENERAL_QA", "OUT_OF_SCOPE"]
_NO_TOOL = frozenset(("", "none", "null"))
# Fields of earlier replies and stored plans: accepted, and derived from the steps.
_DERIVED = ("agents", "intent_reason", "intent_confidence")


class NamedValue(BaseModel):
    """One named value."""

    # A list instead of a map, and text instead of any type: strict schemas have no free keys, and
    # small models get unions wrong.
    name: str = Field(description="Name of the value")
    value: str = Field(
        description="Text, number, JSON, or a reference such as @{outputs.step_1.table}"
    )

    @field_validator("value", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        return value if isinstance(value, str) else json.dumps(value, default=str)


class PlannedStep(BaseModel):
    """One agent's part of the plan."""

    step_id: str = Field(
        default="", description="Letters, digits, - and _, beginning with a letter"
    )
    agent: str = Field(description="Name of one of the agents")
    task: str = Field(default="", description="What the agent is to do")
    tool_name: str | None = Field(default=None, description="Tool of the agent, or null")
    sub_task_input: list[NamedValue] = Field(
        default_factory=list, description="Inputs by name, references among them"
    )
    depends_on: list[str] = Field(default_factory=list, description="Ids of steps to wait for")
    is_final_answer: bool = Field(
        default=False, description="Whether its own words are the whole answer"
    )

    @model_validator(mode="before")
    @classmethod
    def _of_name(cls, data: Any) -> Any:
        """Read a bare agent name as a step with the whole question."""
        return {"agent": data} if isinstance(data, str) else data

    @field_validator("step_id", mode="before")
    @classmethod
    def _id(cls, value: Any) -> Any:
        return _id_text(value)

    @field_validator("depends_on", mode="before")
    @classmethod
    def _ids(cls, value: Any) -> Any:
        ids = [] if value is None else value if isinstance(value, (list, tuple)) else [value]
        return [_id_text(each) for each in ids]

    @field_validator("tool_name")
    @classmethod
    def _no_tool(cls, value: str | None) -> str | None:
        return None if value is None or value.strip().lower() in _NO_TOOL else value.strip()

    @field_validator("sub_task_input", mode="before")
    @classmethod
    def _list_of_inputs(cls, value: Any) -> Any:
        return _named(value)


class PlannerReply(BaseModel):
    """The whole plan in one reply."""

    # In the order of writing: the reason comes before what it is a reason for.
    rationale: str = Field(
        default="", description="In one sentence: what the question needs, and why these agents"
    )
    intent: IntentName = Field(description="What the question asks for")
    confidence: float = Field(default=0.0, description="Confidence in the plan, from 0 to 1")
    entities: list[NamedValue] = Field(
        default_factory=list,
        description="Details of the question: date_range, metric, names, doc_type, …",
    )
    steps: list[PlannedStep] = Field(default_factory=list, description="The steps, in order")

    @model_validator(mode="before")
    @classmethod
    def _without_derived(cls, data: Any) -> Any:
        """Drop derived fields; agents without steps become one step each."""
        if not isinstance(data, dict):
            return data
        kept = {name: value for name, value in data.items() if name not in _DERIVED}
        if not kept.get("steps") and data.get("agents"):
            kept["steps"] = data["agents"]
        if not kept.get("rationale") and data.get("intent_reason"):
            kept["rationale"] = data["intent_reason"]
        return kept

    @field_validator("intent", mode="before")
    @classmethod
    def _intent(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return "_".join(value.upper().replace("-", " ").split()).removeprefix("INTENT_")

    @field_validator("entities", mode="before")
    @classmethod
    def _list_of_entities(cls, value: Any) -> Any:
        return _named(value)

    @field_validator("steps", mode="before")
    @classmethod
    def _no_steps(cls, value: Any) -> Any:
        return [] if value is None else value


def read_value(text: str) -> Any:
    """Parse a value that a model wrote as text: JSON if it round-trips exactly, else text.

    * Numbers, ``true``, ``false`` and ``null`` are parsed if they round-trip: ``5`` and
      ``2.5`` are numbers; ``00123``, ``1.10``, ``1e5``, ``-0`` and `` 5 `` stay text.
    * Lists and maps are parsed, with their JSON numbers as numbers. Maps with a duplicate key, and
      values that no message can carry, stay text.
    * Quotes belong to the text, as in ``"exact phrase"``, unless the text within would be parsed
      as a value: ``"5"`` and ``"null"`` are the texts within.
    * All else is text, unchanged: dates and references, for instance.
    """
    try:
        value = json.loads(
            text, parse_float=_number, parse_constant=_no_constant, object_pairs_hook=_map
        )
        to_value(value)
    except (ValueError, TypeError, RecursionError):
        return text
    if isinstance(value, dict | list):
        return value
    if isinstance(value, str):
        return text if text != text.strip() or read_value(value) == value else value
    return value if _written(value) == text else text


def is_number(value: Any) -> bool:
    """Whether a parsed value is a number."""
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _written(value: bool | float | Decimal | None) -> str:
    """Canonical JSON of a number, ``true``, ``false`` or ``null``."""
    return format(value, "f") if isinstance(value, Decimal) else json.dumps(value)


def _map(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(fields)
    if len(found) < len(fields):
        raise ValueError("a key occurs twice")
    return found


def _number(text: str) -> float | Decimal:
    """Parse a number as float if that is exact, as programs calculate with floats."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("not a finite number")
    exact = Decimal(text)
    return number if Decimal(repr(number)) == exact else exact


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _named(values: Any) -> Any:
    """Convert a map to a list of named values."""
    if isinstance(values, dict):
        return [{"name": str(name), "value": value} for name, value in values.items()]
    return [] if values is None else values


def _id_text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value
