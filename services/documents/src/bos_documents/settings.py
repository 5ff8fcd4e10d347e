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
        description="Folder of the embedded vector index, for one replica only; it is as "
        "confidential as the documents, and rebuilt from PostgreSQL if it is lost",
    )
    qdrant_url: str | None = Field(
        default=None,
        description="URL of a Qdrant server that replaces the embedded index; required for several "
        "replicas",
    )
    qdrant_api_key: SecretStr | None = Field(
        default=None, description="API key of the Qdrant server, or a token for its collections"
    )
    qdrant_layout: Literal["collection_per_user", "tenant_key"] = Field(
        default="collection_per_user",
        description="Collections on the Qdrant server: one per user, or one for all with a tenant "
        "key per point (tenant_key), for more than about a thousand users",
    )
    qdrant_replicas: int = Field(
        default=1,
        ge=1,
        le=16,
        description="Replication factor of new collections in a Qdrant cluster: with 2, one node "
        "may fail",
    )
    embedding_model: str = Field(
        default="",
        description="Embedding model at the endpoint of DOCUMENTS_MODEL_PROVIDER, such as "
        "text-embedding-3-small; empty: the small English one that is installed with Bos. After "
        "a change documents are embedded anew in the background, and found by their words until "
        "then",
    )
    embedding_dimension: int | None = Field(
        default=None, ge=1, le=65_536, description="Dimension of the vectors of that model"
    )
    chunk_tokens: int = Field(
        default=384,
        ge=16,
        le=1024,
        description="Target size of passages in tokens; paragraphs of a section are joined up to "
        "it",
    )
    ocr_languages: str = Field(
        default="eng",
        pattern=r"^[a-z_]{3,16}(\+[a-z_]{3,16}){0,7}$",
        description="OCR languages for scanned pages, where tesseract is installed, such as "
        "eng+deu",
    )
    max_pages: int = Field(default=2000, ge=1, description="Maximum pages of one document")
    spool_folder: Path | None = Field(
        default=None,
        description="Folder for files while they are uploaded or read; unset: the system's "
        "temporary folder. It needs space for BOS_DOCUMENTS_MAX_UPLOADS files of the maximum size",
    )
    max_document_bytes: int = Field(
        default=32 * _MIB, ge=1024, description="Maximum size of one document in bytes"
    )
    max_documents_per_user: int = Field(
        default=1000, ge=1, description="Maximum documents per user"
    )
    max_bytes_per_user: int = Field(
        default=2048 * _MIB,
        ge=1024,
        description="Maximum total size of a user's documents in bytes",
    )
    max_pages_per_user: int = Field(
        default=50_000, ge=1, description="Maximum total pages of a user's documents"
    )
    max_uploads: int = Field(
        default=32, ge=1, description="Maximum concurrent uploads; more are refused"
    )
    max_uploads_per_user: int = Field(
        default=8, ge=1, description="Maximum concurrent uploads per user; more are refused"
    )
    upload_timeout_s: float = Field(default=300.0, gt=0, description="Timeout of one upload")
    max_watches: int = Field(
        default=500, ge=1, description="Maximum concurrent watch streams; more are refused"
    )
    max_watches_per_user: int = Field(
        default=20, ge=1, description="Maximum concurrent watch streams per user; more are refused"
    )
    watch_timeout_s: float = Field(
        default=900.0, gt=0, description="Maximum duration of a watch stream"
    )
    workers: int = Field(
        default=2, ge=1, description="Documents that this replica reads concurrently"
    )
    require_offline_parsers: bool = Field(
        default=False,
        description="Do not read documents where the kernel does not allow parser processes "
        "without network; false: they are read, and a warning is logged",
    )
    lease_s: float = Field(
        default=60.0,
        ge=1,
        description="Lease of a job; another replica takes it over when it is not renewed for this "
        "long",
    )
    poll_s: float = Field(
        default=5.0, gt=0, description="Polling interval for work without a notification"
    )
    max_attempts: int = Field(
        default=3,
        ge=1,
        description="Maximum attempts at a document that crashes its parser or the service",
    )
    retry_first_s: float = Field(
        default=2.0, ge=0, description="First back-off after a failed attempt"
    )
    retry_cap_s: float = Field(default=300.0, gt=0, description="Maximum back-off")
    max_chunks: int = Field(default=50_000, ge=1, description="Maximum chunks of one document")
    index_batch: int = Field(
        default=64, ge=1, description="Batch size in chunks for embedding and indexing"
    )
    check_interval_s: float = Field(
        default=3600.0,
        gt=0,
        description="Interval at which a document's vectors are counted, and repaired if some are "
        "missing",
    )
    describe_timeout_s: float = Field(
        default=30.0,
        gt=0,
        description="Timeout of the model for a document's description; then it is extracted by "
        "rule",
    )
    max_reply_tokens: int = Field(
        default=512,
        ge=64,
        description="Longest reply of the model; those that are known to think get room for that "
        "beside it (BOS_MODEL_REASONING_TOKENS)",
    )
    search_timeout_s: float = Field(default=10.0, gt=0, description="Timeout of one search")
    search_mode: RankBy = Field(
        default=RankBy.BLEND,
        description="Default ranking of passages: dense, sparse, rrf or blend",
    )
    candidates: int = Field(default=50, ge=20, description="Candidates from each leg of a search")
