"""Replies of the model: the planned call, and a response in words."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, Field, field_validator


class NamedText(BaseModel):
    """One named value; a list of these instead of a map, as strict schemas have no free keys."""

    name: str = Field(description="Name")
    value: str = Field(description="Value as text")

    @field_validator("name", "value", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        return _text(value)


class ApiCallPlan(BaseModel):
    """The call that answers the task, or why there is none."""

    # In the order of writing: the reason comes before what it is a reason for.
    reason: str = Field(default="", description="Why this call answers the task, in one sentence")
    make_request: bool = Field(description="Whether to make the call")
    api: str = Field(default="", description="Name of the API, if there are several")
    method: str = Field(default="", description="GET, HEAD, POST, PUT, PATCH or DELETE")
    path: str = Field(default="", description="Path of the endpoint as documented, such as /v1/x")
    path_params: list[NamedText] = Field(
        default_factory=list, description="Values of the path's placeholders"
    )
    query_params: list[NamedText] = Field(default_factory=list, description="Query parameters")
    json_body: str | None = Field(
        default=None, description="JSON of the body for POST, PUT or PATCH, as text, or null"
    )
    headers: list[NamedText] = Field(
        default_factory=list, description="Additional headers; never credentials"
    )
    answer: str = Field(
        default="",
        description="Where the task asks about the API itself: the answer from the documentation",
    )
    list_endpoints: bool = Field(
        default=False, description="Whether the task asks for a list of all endpoints"
    )
    failure_reason: str = Field(
        default="", description="Why no call can be made, if make_request is false"
    )

    @field_validator("path_params", "query_params", "headers", mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        """Accept the map that some models write instead of the list."""
        if value is None:
            return []
        if not isinstance(value, dict):
            return value
        return [{"name": name, "value": each} for name, each in value.items() if each is not None]

    @field_validator("json_body", mode="before")
    @classmethod
    def _body(cls, value: Any) -> Any:
        return value if value is None or isinstance(value, str) else json.dumps(value)

    @field_validator("api", "method", "path", "reason", "answer", "failure_reason", mode="before")
    @classmethod
    def _no_null(cls, value: Any) -> Any:
        return "" if value is None else value


class ApiSummary(BaseModel):
    """A response in words."""

    answer: str = Field(
        description="What the API answered: status, the fields that the task asks for, errors"
    )


def values(named: list[NamedText]) -> dict[str, str]:
    """The values by name; the last one of a name counts."""
    return {each.name: each.value for each in named}


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list) and all(isinstance(each, str | int | float) for each in value):
        return ",".join(map(str, value))
    return json.dumps(value, default=str) if isinstance(value, dict | list) else value
