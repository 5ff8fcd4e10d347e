"""Schema of the model's structured reply."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

OperationName = Literal[
    "list_files",
    "read_file",
    "write_file",
    "create_pdf_from_text",
    "write_xlsx",
    "write_csv",
    "download_file",
    "rename_file",
    "delete_file",
]


class FileOperation(BaseModel):
    """One operation on the user's files."""

    operation: OperationName
    name: str = Field(default="", description="Name of the file, with its ending")
    title: str = Field(default="", description="Title of a PDF, or name of a sheet")
    text: str = Field(default="", description="What is written, as Markdown for a PDF")
    source: str = Field(
        default="", description="Variable whose rows or text are written; empty if text is all"
    )
    columns: list[str] = Field(
        default_factory=list, description="Columns of a table, in this order; empty: all"
    )
    url: str = Field(default="", description="Address to download")
    new_name: str = Field(default="", description="New name of a renamed file")
