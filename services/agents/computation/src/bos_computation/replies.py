"""Schemas of the model's structured replies."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    return text


# A validator and no minLength: not every endpoint supports that keyword in a strict schema.
Text = Annotated[str, AfterValidator(_not_blank)]


class ComputationPlan(BaseModel):
    """What is computed, from what, and by which program."""

    # In the order of writing: the approach before the program.
    explanation: str = Field(default="", description="What is computed and how, in one sentence")
    inputs: list[str] = Field(default_factory=list, description="Names of the variables it uses")
    code: Text = Field(description="The whole Python program")


class SummaryTable(BaseModel):
    """A small table."""

    columns: list[str] = Field(description="Names of the columns")
    rows: list[list[str | float | int | None]] = Field(description="One cell per column")


class ComputationSummary(BaseModel):
    """The program's result in words, and as a table where that helps."""

    answer: Text = Field(description="The answer in plain words, in the language of the question")
    table: SummaryTable | None = Field(default=None, description="The result as a table, or null")
