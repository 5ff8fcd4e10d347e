"""Interface of artefact stores: put, get, delete."""

from __future__ import annotations

from dataclasses import dataclass
from typing import BinaryIO, Protocol

from bos_artefacts.owner import Owner
from bos_errors import BosError, InvalidArgument, NotFound


class ArtefactMissing(NotFound):
    """There is no such blob of this owner."""

    default_reason = "ARTEFACT_MISSING"


class ArtefactDamaged(BosError):
    """The stored bytes are not those of the digest."""

    default_reason = "ARTEFACT_DAMAGED"


class ArtefactTooLarge(InvalidArgument):
    """The blob is larger than the store takes."""

    default_reason = "ARTEFACT_TOO_LARGE"


@dataclass(frozen=True, slots=True)
class Artefact:
    """A stored blob."""

    digest: str
    """SHA-256 in lower-case hexadecimal digits."""
    size_bytes: int


class ArtefactStore(Protocol):
    """Blobs by owner and digest. Every call ends within the store's deadline."""

    async def put(self, owner: Owner, content: bytes) -> Artefact:
        """Store a blob; storing it again changes nothing.

        Raises:
            ArtefactTooLarge: it is larger than the store takes.
            Unavailable: the store is away or refuses it.
        """
        ...

    async def get(self, owner: Owner, digest: str) -> bytes:
        """The blob, checked against its digest.

        Raises:
            ArtefactMissing: this owner has no such blob.
            ArtefactDamaged: something else is stored there.
            InvalidArgument: ``digest`` is no digest.
            Unavailable: the store is away.
        """
        ...

    async def put_file(self, owner: Owner, source: BinaryIO, artefact: Artefact) -> None:
        """Store an open file from its start, piece by piece; storing it again changes nothing.

        Args:
            owner: Whose it is.
            source: The file; not used otherwise meanwhile.
            artefact: Its digest and size, which the caller has counted.

        Raises:
            ArtefactTooLarge: it is larger than the store takes.
            InvalidArgument: the digest is no digest.
            Unavailable: the store is away or refuses it.
        """
        ...

    async def fetch(self, owner: Owner, digest: str, into: BinaryIO) -> int:
        """Copy a blob into an open file, piece by piece, checked; returns its size.

        Raises:
            ArtefactMissing, ArtefactDamaged, InvalidArgument, Unavailable: as :meth:`get`; what
                ``into`` holds by then is incomplete.
        """
        ...

    async def delete(self, owner: Owner) -> int:
        """Delete every blob of a run, also half-written ones; returns how many there were.

        Raises:
            Unavailable: the store is away; some may be deleted.
        """
        ...
