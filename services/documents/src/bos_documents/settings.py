"""Settings of the documents service."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr
from pydantic_settings import SettingsConfigDict

from bos_chassis.settings import AuthSettings, ServerSettings, Settings, TelemetrySettings
from bos_postgres.audit import AuditSettings

_MIB = 1024 * 1024


class RankBy(StrEnum):
    """How the legs of a search become one ranking."""

    DENSE = "dense"
    SPARSE = "sparse"
    RRF = "rrf"
    BLEND = "blend"


class DocumentsSettings(Settings):
    """``BOS_DOCUMENTS_…``. Which model describes documents is set by ``DOCUMENTS_MODEL``."""

    model_config = SettingsConfigDict(env_prefix="BOS_DOCUMENTS_")

    server: ServerSettings = Field(default_factory=ServerSettings.load)
    telemetry: TelemetrySettings = Field(default_factory=TelemetrySettings.load)
    auth: AuthSettings = Field(default_factory=AuthSettings.load)
    audit: AuditSettings = Field(default_factory=AuditSettings.load)

    store_url: str = Field(
        min_length=1,
        description="PostgreSQL URL of documents, chunks and jobs, whose option password_file "
        "names a file in the place of a password",
    )
    files_url: str = Field(
        min_length=1,
        description="Where uploaded files are stored: file:///folder (that all replicas share) or "
        "s3://bucket/prefix, apart from the gateway's artefacts",
    )
    index_folder: Path | None = Field(
        default=None,
        description="Folder of the embedded vector index, which one replica alone may use; it is "
        "confidential as the documents are, and made anew from PostgreSQL where it is lost",
    )
    qdrant_url: str | None = Field(
        default=None,
        description="URL of a Qdrant server, in place of the embedded index; several replicas of "
        "this service need one",
    )
    qdrant_api_key: SecretStr | None = Field(
        default=None, description="API key of the Qdrant server, or a token for its collections"
    )
    qdrant_layout: Literal["collection_per_user", "tenant_key"] = Field(
        default="collection_per_user",
        description="Collections on the Qdrant server: one for each user, or one for all whose "
        "points bear their user (tenant_key), for more than about a thousand users",
    )
    qdrant_replicas: int = Field(
        default=1,
        ge=1,
        le=16,
        description="Copies of each collection on the nodes of a Qdrant cluster: with 2, one node "
        "may fail. It holds for collections that are made from then on",
    )
    embedding_model: str = Field(
        default="",
        description="Embedding model at the endpoint of DOCUMENTS_MODEL_PROVIDER, such as "
        "text-embedding-3-small; empty: the small English one that is installed with Bos. After "
        "a change documents are embedded anew in the background, and found by their words until "
        "then",
    )
    embedding_dimension: int | None = Field(
        default=None, ge=1, le=65_536, description="Numbers in the vectors of that model"
    )
    chunk_tokens: int = Field(
        default=384,
        ge=16,
        le=1024,
        description="Paragraphs of a section are joined to passages of up to this many tokens",
    )
    ocr_languages: str = Field(
        default="eng",
        pattern=r"^[a-z_]{3,16}(\+[a-z_]{3,16}){0,7}$",
        description="Languages in which pages that are pictures are read, where tesseract is "
        "installed, such as eng+deu",
    )
    max_pages: int = Field(default=2000, ge=1, description="Pages that one document may have")
    spool_folder: Path | None = Field(
        default=None,
        description="Folder of files that are being uploaded or read; unset: the system's for "
        "temporary files. It needs room for BOS_DOCUMENTS_MAX_UPLOADS files of the largest size",
    )
    max_document_bytes: int = Field(
        default=32 * _MIB, ge=1024, description="Largest document in bytes"
    )
    max_documents_per_user: int = Field(
        default=1000, ge=1, description="Documents that one user may have"
    )
    max_bytes_per_user: int = Field(
        default=2048 * _MIB, ge=1024, description="Bytes that all documents of one user may have"
    )
    max_pages_per_user: int = Field(
        default=50_000, ge=1, description="Pages that all documents of one user may have"
    )
    max_uploads: int = Field(
        default=32, ge=1, description="Uploads at once of all users; more are refused"
    )
    max_uploads_per_user: int = Field(
        default=8, ge=1, description="Uploads at once of one user; more are refused"
    )
    upload_timeout_s: float = Field(
        default=300.0, gt=0, description="Longest time that one upload may take"
    )
    max_watches: int = Field(
        default=500, ge=1, description="Watched documents at once of all users; more are refused"
    )
    max_watches_per_user: int = Field(
        default=20, ge=1, description="Watched documents at once of one user; more are refused"
    )
    watch_timeout_s: float = Field(
        default=900.0, gt=0, description="A stream of changes ends after this at the latest"
    )
    workers: int = Field(default=2, ge=1, description="Documents that this replica reads at once")
    require_offline_parsers: bool = Field(
        default=False,
        description="Have documents wait unread where the kernel does not let parser processes cut "
        "themselves off from the network; false: they are read, and a warning is logged",
    )
    lease_s: float = Field(
        default=60.0,
        ge=1,
        description="After so long without a sign of life another replica takes a document over",
    )
    poll_s: float = Field(
        default=5.0, gt=0, description="Time between two looks for work that no one announced"
    )
    max_attempts: int = Field(
        default=3,
        ge=1,
        description="Attempts at a document that ends its parser, or the service itself, before it "
        "is given up",
    )
    retry_first_s: float = Field(
        default=2.0, ge=0, description="Wait before a failed document is tried again"
    )
    retry_cap_s: float = Field(default=300.0, gt=0, description="Longest such wait")
    max_chunks: int = Field(default=50_000, ge=1, description="Chunks that one document may have")
    index_batch: int = Field(default=64, ge=1, description="Chunks embedded and indexed at a time")
    check_interval_s: float = Field(
        default=3600.0,
        gt=0,
        description="How often the vectors of a document are counted, and repaired if some are "
        "missing",
    )
    describe_timeout_s: float = Field(
        default=30.0,
        gt=0,
        description="Time for the model to describe a document; after that its description is "
        "extracted by rule",
    )
    max_reply_tokens: int = Field(
        default=512,
        ge=64,
        description="Longest reply of the model; those that are known to think get room for that "
        "beside it (BOS_MODEL_REASONING_TOKENS)",
    )
    search_timeout_s: float = Field(
        default=10.0, gt=0, description="Longest time that one search may take"
    )
    search_mode: RankBy = Field(
        default=RankBy.BLEND,
        description="How passages are ranked where a search does not say: dense, sparse, rrf or "
        "blend",
    )
    candidates: int = Field(
        default=50, ge=20, description="Passages that each leg of a search contributes"
    )
