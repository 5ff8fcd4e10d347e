"""Reply of the model: the message to the remote agent."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field, field_validator


class AgentMessage(BaseModel):
    """The message that hands the task to the agent."""

    # In the order of writing: the reason comes before what it is a reason for.
    reason: str = Field(default="", description="Why the agent can do the task, in one sentence")
    message: str = Field(
        default="", description="The whole message to the agent; empty if it cannot do the task"
    )
    failure_reason: str = Field(
        default="", description="What is missing, if the agent cannot do the task"
    )

    @field_validator("reason", "message", "failure_reason", mode="before")
    @classmethod
    def _no_null(cls, value: Any) -> Any:
        return "" if value is None else value
