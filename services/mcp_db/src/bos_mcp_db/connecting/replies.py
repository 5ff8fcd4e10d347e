"""Schema of the model's reply; its descriptions are part of the prompt."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field


class FieldWords(BaseModel):
    """A field whose name does not say what it is."""

    field: str = Field(description="its name, without the table")
    description: str = ""
    synonyms: list[str] = []


class TableWords(BaseModel):
    """What a table holds."""

    table: str
    description: str = Field(default="", description="what a row is, in one sentence")
    synonyms: list[str] = []
    fields: list[FieldWords] = []


class MetricWords(BaseModel):
    """A number that people ask for."""

    name: str = Field(description="in one to four words, such as net revenue")
    aggregate: Literal["sum", "avg", "min", "max", "count", "count_distinct"]
    field: str = Field(description="table.field")
    time: str = Field(default="", description="table.field of the date that counts, or empty")
    description: str = ""
    synonyms: list[str] = []


class JoinWords(BaseModel):
    """Two fields with the same values, without a key that says so."""

    left: str = Field(description="table.field")
    right: str = Field(description="table.field")
    description: str = ""


class SchemaWords(BaseModel):
    """Metadata of the tables."""

    tables: list[TableWords] = []
    metrics: list[MetricWords] = []
    joins: list[JoinWords] = []
