"""Rows of workspaces as values and as messages of the contract; pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from bos.files.v1 import File, FileOrigin, FileVersion

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    import asyncpg

Origin = Literal["upload", "step", "download"]

_ORIGINS: Final = {
    "upload": FileOrigin.FILE_ORIGIN_UPLOAD,
    "step": FileOrigin.FILE_ORIGIN_STEP,
    "download": FileOrigin.FILE_ORIGIN_DOWNLOAD,
}
COLUMNS: Final = (
    "f.name, f.file_id, f.renamed_from, v.version_id, v.number, v.digest, v.size_bytes, "
    "v.media_type, v.origin, v.tainted, v.run_id, v.step_key, v.created_at"
)


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored version of a file."""

    name: str
    file_id: UUID
    version_id: UUID
    number: int
    digest: str
    """SHA-256 in hexadecimal digits."""
    size_bytes: int
    media_type: str
    origin: str
    tainted: bool
    run_id: str
    step_key: str
    renamed_from: str
    created_at: datetime

    @classmethod
    def of(cls, row: asyncpg.Record) -> Stored:
        """The version of a row of :data:`COLUMNS`."""
        return cls(
            name=row["name"],
            file_id=row["file_id"],
            version_id=row["version_id"],
            number=row["number"],
            digest=row["digest"].hex(),
            size_bytes=row["size_bytes"],
            media_type=row["media_type"],
            origin=row["origin"],
            tainted=row["tainted"],
            run_id=row["run_id"],
            step_key=row["step_key"],
            renamed_from=row["renamed_from"],
            created_at=row["created_at"],
        )

    def message(self) -> File:
        """As the contract has it."""
        found = File(
            name=self.name,
            digest=f"sha256:{self.digest}",
            size_bytes=self.size_bytes,
            media_type=self.media_type,
            version=self.number,
            origin=_ORIGINS[self.origin],
            tainted=self.tainted,
            run_id=self.run_id,
        )
        found.update_time.FromDatetime(self.created_at)
        return found

    def version_message(self) -> FileVersion:
        """As one of the versions of a file."""
        found = FileVersion(
            version=self.number,
            digest=f"sha256:{self.digest}",
            size_bytes=self.size_bytes,
            media_type=self.media_type,
            origin=_ORIGINS[self.origin],
        )
        found.create_time.FromDatetime(self.created_at)
        return found


@dataclass(frozen=True, slots=True)
class Writing:
    """A content that is to become a version of a file."""

    name: str
    digest: str
    size_bytes: int
    media_type: str
    origin: Origin
    tainted: bool
    run_id: str = ""
    step_key: str = ""


@dataclass(frozen=True, slots=True)
class Held:
    """Usage of a user's workspace."""

    files: int
    size_bytes: int
