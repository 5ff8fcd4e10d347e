"""Schemas of the model's structured replies, one per kind of call.

Models write fields in this order, so reasons stand before verdicts. Class names, docstrings and
descriptions are part of every call's prompt.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field


class Question(BaseModel):
    """One question to the user."""

    question: str
    options: list[str] = Field(default=[], description="suggested answers")


class QueryDraft(BaseModel):
    """The query, or what has to be settled before it can be written."""

    reasoning: str = Field(
        default="", description="one line: measure, tables, joins, filters, period; or what is open"
    )
    needs_tables: list[str] = Field(
        default=[], description="tables to be described first; usually none"
    )
    is_clear: bool
    clarifying_questions: list[Question] = Field(default=[], description="empty if clear")
    assumptions: list[str] = Field(
        default=[], description="what goes beyond the task, or would be assumed without an answer"
    )
    sql: str | None = Field(default=None, description="empty if there is no query yet")
    used_tables: list[str] = Field(default=[])
    notes: str = Field(default="", description="why no query is possible, else empty")
    followups: list[str] = Field(default=[], description="up to two questions to ask next")


class SchemaChoice(BaseModel):
    """Which tables matter, and whether the task is clear."""

    tables: list[str] = Field(description="tables whose columns are needed, spelled as listed")
    is_clear: bool = Field(description="false if different readings would give different numbers")
    clarifying_questions: list[Question] = Field(default=[], description="empty if clear")
    assumptions: list[str] = Field(
        default=[], description="what would be assumed without an answer"
    )


class ClarityCheck(BaseModel):
    """Whether the task is clear."""

    is_clear: bool
    clarifying_questions: list[Question] = Field(default=[], description="empty if clear")
    assumptions: list[str] = Field(default=[])


class GeneratedSql(BaseModel):
    """One query."""

    sql: str | None = Field(default=None, description="the query; empty if none is possible")
    notes: str = Field(default="", description="why no query is possible, else empty")


class QueryReview(BaseModel):
    """Whether a query answers the task."""

    checks: str = Field(
        default="",
        description="one line: tables, joins, filters, period, aggregation against the task",
    )
    is_correct: bool
    corrected_sql: str | None = Field(
        default=None, description="the whole corrected query, or null if it is correct"
    )


class ErrorTriage(BaseModel):
    """What to do about a query that the database refused."""

    reason: str = Field(default="", description="one line: what the error says")
    action: Literal["RETRY_WITH_PATCH", "ASK_CLARIFICATION", "STOP"]
    patched_sql: str | None = Field(default=None, description="the whole corrected query, or null")
    clarifying_questions: list[Question] = Field(default=[])
    user_message: str | None = Field(default=None, description="what to tell the user on STOP")


class DialectVariant(BaseModel):
    """The same query in another dialect."""

    sql: str | None = Field(default=None, description="empty if it cannot be written")


class ResultInterpretation(BaseModel):
    """The answer in words."""

    answer: str
    highlights: list[str] = Field(default=[])
    followups: list[str] = Field(default=[], description="up to two questions to ask next")
