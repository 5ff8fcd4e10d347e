"""What the model replies: an order of passages, and an answer with its quotations."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Ranking(BaseModel):
    """Passages by how well they answer the question, best first."""

    model_config = ConfigDict(extra="forbid")

    ranked_indices: list[int] = Field(
        description="Numbers of the passages that help to answer, best first; empty if none does"
    )


class Quotation(BaseModel):
    """Words of a passage that carry a statement of the answer."""

    model_config = ConfigDict(extra="forbid")

    passage: int = Field(description="Number of the passage")
    quote: str = Field(description="The words, copied exactly from the passage, at most 300 chars")


class DocumentAnswer(BaseModel):
    """The answer from the passages alone."""

    model_config = ConfigDict(extra="forbid")

    found: bool = Field(description="Whether the passages answer the question, at least in part")
    answer: str = Field(description="The answer, each statement followed by its passages as [1]")
    quotations: list[Quotation] = Field(description="One per passage cited in the answer")
