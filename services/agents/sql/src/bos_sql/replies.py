"""What the model is asked to fill in, one schema per kind of call. Class names go over the wire."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field


class Question(BaseModel):
    """One question to the user."""

    question: str
    options: list[str] = Field(
        default=[], description="Suggested answers, made only of tables, columns and values shown"
    )


class SchemaChoice(BaseModel):
    """Which tables matter, and whether the task is clear (SPEC D-03, D-08)."""

    tables: list[str] = Field(description="Tables whose columns are needed, spelled as listed")
    is_clear: bool = Field(description="False if different readings would give different numbers")
    clarifying_questions: list[Question] = Field(default=[])
    assumptions: list[str] = Field(
        default=[], description="What would be assumed if the user did not answer"
    )


class ClarityCheck(BaseModel):
    """The same judgement with the columns in sight (SPEC D-03)."""

    is_clear: bool
    clarifying_questions: list[Question] = Field(default=[])
    assumptions: list[str] = Field(default=[])


class GeneratedSql(BaseModel):
    """One query, written once in each dialect (SPEC D-09, DEC-03)."""

    sql_postgres: str = Field(description="For PostgreSQL")
    sql_server: str = Field(description="For SQL Server (T-SQL)")
    sql_sqlite: str = Field(description="For SQLite")
    used_tables: list[str] = Field(default=[])
    notes: str = Field(default="", description="Why no query is possible, if none is")
    assumptions: list[str] = Field(default=[])


class QueryReview(BaseModel):
    """Whether a query answers the task (SPEC D-13)."""

    is_correct: bool
    corrected_sql: str | None = Field(
        default=None, description="The whole corrected query in the dialect shown, or null"
    )
    reason: str = ""


class ErrorTriage(BaseModel):
    """What to do about a query that the database refused (SPEC D-27)."""

    action: Literal["RETRY_WITH_PATCH", "ASK_CLARIFICATION", "STOP"]
    patched_sql_postgres: str | None = None
    patched_sql_server: str | None = None
    patched_sql_sqlite: str | None = None
    clarifying_questions: list[Question] = Field(default=[])
    user_message: str | None = Field(default=None, description="What to tell the user on STOP")


class ResultInterpretation(BaseModel):
    """The answer in words (SPEC D-30)."""

    answer: str
    highlights: list[str] = Field(default=[])
    followups: list[str] = Field(default=[], description="Questions to ask next")
