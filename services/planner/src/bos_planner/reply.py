"""What the model is asked to return, and templates are written in (SPEC B-08, B-16)."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

IntentName = Literal["DATA_QA", "ANALYTICS_REPORT", "GENERAL_QA", "OUT_OF_SCOPE"]
Scalar = str | bool | int | float | None


class NamedValue(BaseModel):
    """One named input. A list of these instead of a map: strict schemas have no free keys."""

    name: str = Field(description="Name of the input")
    value: Scalar | list[Scalar] = Field(
        description="The value, or a reference such as @{outputs.step_1.table}"
    )


class PlannedStep(BaseModel):
    """One agent's part of the plan."""

    step_id: str = Field(description="Unique; letters, digits, - and _, beginning with a letter")
    agent: str = Field(description="Name of one of the agents")
    task: str = Field(description="What the agent is to do, in plain language and complete")
    tool_name: str | None = Field(default=None, description="One of the agent's tools, or null")
    sub_task_input: list[NamedValue] = Field(
        default_factory=list, description="Named inputs; the place for references"
    )
    depends_on: list[str] = Field(
        default_factory=list, description="Steps whose outcome this step wants to know"
    )
    is_final_answer: bool = Field(
        default=False, description="True only if this step's answer is the final answer as it is"
    )


class PlannerReply(BaseModel):
    """The whole plan in one reply (SPEC B-12, X-38)."""

    intent: IntentName = Field(description="What the question asks for")
    intent_reason: str = Field(default="", description="Why, in one sentence")
    intent_confidence: float | None = Field(
        default=None, description="From 0 to 1; null if the same as confidence"
    )
    agents: list[str] = Field(default_factory=list, description="Agents, in order")
    rationale: str = Field(default="", description="Why these agents, in one or two sentences")
    confidence: float = Field(default=0.0, description="Confidence in the plan, from 0 to 1")
    entities: list[NamedValue] = Field(
        default_factory=list,
        description="Details of the question: date_range, metric, names, doc_type and the like",
    )
    steps: list[PlannedStep] = Field(default_factory=list, description="The steps, in order")
