"""Settings of the files agent and its workspaces."""

from __future__ import annotations

from pathlib import Path
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
        default=20 * _MIB, ge=0, description="Maximum size of a download"
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
        description="PostgreSQL URL of the workspaces, whose option password_file names a file "
        "with the password",
    )
    workspace_url: str = Field(
        min_length=1,
        description="URL of the files' content: file:///folder (shared by all replicas) or "
        "s3://bucket/prefix, apart from the gateway's artefacts",
    )
    fonts_folder: Path | None = Field(
        default=None,
        description="Folder of additional fonts (TTF, OTF) for PDF files",
    )
    max_file_bytes: int = Field(
        default=20 * _MIB, ge=1024, description="Maximum size of a file in bytes"
    )
    max_files_per_user: int = Field(default=1000, ge=1, description="Maximum files of one user")
    max_bytes_per_user: int = Field(
        default=1024 * _MIB,
        ge=1024,
        description="Maximum bytes of all files of one user, with their earlier versions",
    )
    max_versions: int = Field(default=10, ge=1, le=1000, description="Versions kept of each file")
    max_uploads: int = Field(
        default=16, ge=1, description="Concurrent uploads of all users; more are refused"
    )
    upload_timeout_s: float = Field(default=300.0, gt=0, description="Timeout of one upload")
    max_text_chars: int = Field(
        default=200_000,
        ge=1000,
        description="Maximum characters of a text written as a file or a PDF",
    )
    max_rows: int = Field(default=100_000, ge=1, description="Maximum rows of a spreadsheet")
    max_read_chars: int = Field(
        default=20_000, ge=100, description="Maximum characters that a step reads of a text file"
    )
    pdf_timeout_s: float = Field(default=20.0, gt=0, description="Timeout of one PDF")
    pdf_memory_mib: int = Field(
        default=1024, ge=256, description="Memory limit of the process that makes a PDF"
    )
    max_pdfs: int = Field(default=2, ge=1, description="PDFs made concurrently; more wait")
    query_timeout_s: float = Field(
        default=30.0,
        gt=0,
        le=600,
        description="Timeout of one query over uploaded files, reading included",
    )
    query_memory_mib: int = Field(
        default=512,
        ge=128,
        description="Memory limit of one query over uploaded files; its process may use 1 GiB more",
    )
    max_queries: int = Field(
        default=2,
        ge=1,
        le=64,
        description="Concurrent queries over uploaded files; more wait, and one user has at most "
        "all but one",
    )
    query_queue_timeout_s: float = Field(
        default=10.0,
        gt=0,
        le=600,
        description="Maximum wait of a query over uploaded files for a free place",
    )
    max_table_files: int = Field(
        default=200,
        ge=1,
        le=1000,
        description="Maximum uploaded files of one user that become tables, in order of their "
        "names",
    )
    collect_s: float = Field(default=60.0, gt=0, description="Interval of deleting unused content")
