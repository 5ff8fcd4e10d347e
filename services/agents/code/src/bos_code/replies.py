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


class CodeProposal(BaseModel):
    """A program, and what it does for the person who is asked about it."""

    # In the order of writing: the approach before the program.
    explanation: Text = Field(
        description="What the program does, in one or two sentences, in the language of the task"
    )
    code: Text = Field(description="The whole Python program")


class CodeSummary(BaseModel):
    """The program's result in words."""

    answer: Text = Field(description="The answer in plain words, in the language of the question")
