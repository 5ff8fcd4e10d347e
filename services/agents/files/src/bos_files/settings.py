"""Settings of the files agent and its workspaces."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  pydantic needs it at run time
from typing import ClassVar

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from bos_agentkit import AgentServiceSettings
from bos_http import HttpPolicy
from bos_postgres.audit import AuditSettings

_MIB = 1024 * 1024


class DownloadPolicy(HttpPolicy):
    """``BOS_FILES_HTTP_…``: which hosts files may be downloaded from, and how large they may be."""

    model_config = SettingsConfigDict(env_prefix="BOS_FILES_HTTP_")

    max_response_bytes: int = Field(
        default=20 * _MIB, ge=0, description="Largest file that is downloaded"
    )
    methods: tuple[str, ...] = Field(default=("GET",), description="Methods allowed")


class FilesSettings(AgentServiceSettings):
    """``BOS_FILES_…``. Durations are in seconds."""

    model_config = SettingsConfigDict(env_prefix="BOS_FILES_")

    serves_people: ClassVar[bool] = True

    audit: AuditSettings = Field(default_factory=AuditSettings.load)
    http: DownloadPolicy = Field(default_factory=DownloadPolicy.load)
    store_url: str = Field(
        min_length=1,
        description="PostgreSQL URL of the workspaces, whose option password_file names a file in "
        "the place of a password",
    )
    workspace_url: str = Field(
        min_length=1,
        description="Where the files' content is stored: file:///folder (that all replicas share) "
        "or s3://bucket/prefix, apart from the gateway's artefacts",
    )
    fonts_folder: Path | None = Field(
        default=None,
        description="Folder with further fonts (TTF, OTF) for PDF files, which steps may name",
    )
    max_file_bytes: int = Field(default=20 * _MIB, ge=1024, description="Largest file in bytes")
    max_files_per_user: int = Field(default=1000, ge=1, description="Files that one user may have")
    max_bytes_per_user: int = Field(
        default=1024 * _MIB,
        ge=1024,
        description="Bytes that all files of one user may have, with their earlier versions",
    )
    max_versions: int = Field(
        default=10, ge=1, le=1000, description="Versions that are kept of each file"
    )
    max_uploads: int = Field(
        default=16, ge=1, description="Uploads at once of all users; more are refused"
    )
    upload_timeout_s: float = Field(
        default=300.0, gt=0, description="Longest time that one upload may take"
    )
    max_text_chars: int = Field(
        default=200_000, ge=1000, description="Longest text that is written as a file or a PDF"
    )
    max_rows: int = Field(default=100_000, ge=1, description="Rows that a spreadsheet may have")
    max_read_chars: int = Field(
        default=20_000, ge=100, description="Characters of a text file that a step reads"
    )
    pdf_timeout_s: float = Field(default=20.0, gt=0, description="Time for one PDF")
    pdf_memory_mib: int = Field(
        default=1024, ge=256, description="Memory of the process that makes a PDF"
    )
    max_pdfs: int = Field(default=2, ge=1, description="PDFs that are made at once; more wait")
    query_timeout_s: float = Field(
        default=30.0,
        gt=0,
        le=600,
        description="Time for one query over uploaded files, with reading them",
    )
    query_memory_mib: int = Field(
        default=512,
        ge=128,
        description="Memory that one query over uploaded files may use; its process may have 1 GiB "
        "more",
    )
    max_queries: int = Field(
        default=2,
        ge=1,
        le=64,
        description="Queries over uploaded files at once; more wait, one user alone has all but "
        "one",
    )
    query_queue_timeout_s: float = Field(
        default=10.0, gt=0, le=600, description="Wait for a place for a query over uploaded files"
    )
    max_table_files: int = Field(
        default=200,
        ge=1,
        le=1000,
        description="Uploaded files of one user that become tables, the first ones by name",
    )
    collect_s: float = Field(
        default=60.0, gt=0, description="Time between two looks for content to delete"
    )
