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


class Worded(BaseModel):
    """A text as the task asks for it."""

    text: Text = Field(description="The text that was asked for and nothing else")


class Notes(BaseModel):
    """What one part of a long text says to the task."""

    notes: str = Field(description="What matters of this part, or empty if nothing does")


class Points(BaseModel):
    """Points of a text."""

    points: list[str] = Field(description="One sentence each, the most important one first")


class Items(BaseModel):
    """Passages copied from a text."""

    items: list[str] = Field(
        description="Each copied exactly from the text; empty if none is there"
    )
