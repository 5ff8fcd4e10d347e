"""Replies of the model: the next call of a step, and a result in words."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, Field, field_validator


class NextCall(BaseModel):
    """The next call of a tool, or the answer where no further call is needed."""

    # In the order of writing: the reason comes before what it is a reason for.
    reason: str = Field(default="", description="Why this is the next thing to do, in one sentence")
    tool: str = Field(
        default="", description="Name of the tool to call; empty if no further call is needed"
    )
    arguments: str = Field(
        default="{}", description="Its arguments as a JSON object that its schema allows, as text"
    )
    answer: str = Field(
        default="", description="The answer to the task from the results, if no call is needed"
    )
    failure_reason: str = Field(
        default="", description="What is missing, if the task cannot be done with these tools"
    )

    @field_validator("arguments", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        return value if isinstance(value, str) else json.dumps(value or {})

    @field_validator("reason", "tool", "answer", "failure_reason", mode="before")
    @classmethod
    def _no_null(cls, value: Any) -> Any:
        return "" if value is None else value


class ResultSummary(BaseModel):
    """Results of tools in words."""

    answer: str = Field(description="The answer to the task from the results")
