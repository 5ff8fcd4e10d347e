"""Schema of the model's structured reply."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field


class ChartChoice(BaseModel):
    """A chart in the terms that a model may choose: no expressions, addresses or data."""

    mark: Literal["bar", "line", "area", "point", "arc", "histogram"] = Field(
        description="Kind of chart; arc is a pie of few parts"
    )
    x: str | None = Field(
        default=None, description="Name of the column of names or dates; null for a histogram"
    )
    y: list[str] = Field(description="Names of the columns of numbers, 1 to 4")
    series: str | None = Field(
        default=None, description="Name of the column that splits into colours, or null"
    )
    order: Literal["value", "name", "given"] = Field(
        default="value", description="Order of the bars"
    )
    stacked: bool = Field(default=False, description="Whether bars or areas stand on one another")
    title: str = Field(description="Title in the language of the question, at most ten words")
