"""What the model replies: how to search, and an answer with its quotations."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

SearchType = Literal["basic", "news", "deep"]
TimeRange = Literal["any", "day", "week", "month", "year"]


class SearchStrategy(BaseModel):
    """How to search for what the task needs."""

    model_config = ConfigDict(extra="forbid")

    query: str = Field(description="Words for a search engine, without private details")
    search_type: SearchType = Field(
        description="news: recent events; deep: whole pages are needed; else basic"
    )
    time_range: TimeRange = Field(description="How old results may be; any where it is not said")


class PageQuotation(BaseModel):
    """Words of a page that carry a statement of the answer."""

    model_config = ConfigDict(extra="forbid")

    page: int = Field(description="Number of the page")
    quote: str = Field(description="The words, copied exactly from the page, at most 300 chars")


class WebAnswer(BaseModel):
    """The answer from the pages alone."""

    model_config = ConfigDict(extra="forbid")

    found: bool = Field(description="Whether the pages answer the task, at least in part")
    answer: str = Field(description="The answer, each statement followed by its pages as [1]")
    quotations: list[PageQuotation] = Field(description="One per page cited in the answer")
    open_pages: list[int] = Field(
        description="Numbers of excerpts whose whole page has to be read before the task can be "
        "answered; empty otherwise"
    )
