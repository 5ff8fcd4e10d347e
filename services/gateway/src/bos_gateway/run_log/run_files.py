"""Files of runs in the artefact store: kept, read and deleted with their run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attrs import define

from bos_artefacts import ArtefactDamaged, ArtefactMissing
from bos_errors import FailedPrecondition, NotFound, Unavailable
from bos_postgres import fetchval

if TYPE_CHECKING:
    import asyncpg

    from bos_artefacts import Artefact as Blob
    from bos_artefacts import ArtefactStore, Owner
    from bos_chassis.telemetry import Telemetry

_MARK: Final = """
UPDATE runs SET has_files = true WHERE run_id = $1 AND finished_at IS NULL RETURNING true
"""


@define(eq=False)
class RunFiles:
    """Keeps the files of runs, and deletes them with their runs."""

    _store: ArtefactStore | None
    """Where they go; None keeps none."""
    _pool: asyncpg.Pool[asyncpg.Record] | None = None
    """Connections whose search path is the gateway's schema; without it nothing is kept."""
    _telemetry: Telemetry | None = None
    """For the log; None where there is none, as in a command."""

    @property
    def enabled(self) -> bool:
        """Whether there is a store."""
        return self._store is not None

    async def keep(self, owner: Owner, content: bytes) -> Blob:
        """Store a file of a run under way; storing it again changes nothing.

        The run is marked before the store is asked, so that the deletion of a run knows whether
        the store may hold anything of it, also if the log never named it.

        Raises:
            FailedPrecondition: there is no store, or the run has ended.
            ArtefactTooLarge, Unavailable: the store refuses it, or is away.
        """
        if self._store is None or self._pool is None:
            raise FailedPrecondition("No artefact store is configured (BOS_GATEWAY_ARTEFACTS_URL).")
        if not await fetchval(self._pool, _MARK, owner.run_id):
            raise FailedPrecondition("The run has ended.")
        return await self._store.put(owner, content)

    async def kept(self, owner: Owner, digest: str) -> bytes:
        """A file of a run.

        Raises:
            NotFound: it is gone, or was damaged; that is said in the log.
            Unavailable: the store is away, or not known here; the file may be there all the same.
        """
        if self._store is None:
            raise Unavailable(
                "This run has files in an artefact store that is not configured here: "
                "set BOS_GATEWAY_ARTEFACTS_URL.",
                reason="ARTEFACTS_NOT_CONFIGURED",
                retry_after_s=1.0,
            )
        try:
            return await self._store.get(owner, digest)
        except (ArtefactMissing, ArtefactDamaged) as error:
            if self._telemetry is not None:
                log = self._telemetry.logger("bos.gateway.files")
                log.error("file missing", run=str(owner.run_id), why=error.reason)
            raise NotFound("This file is gone.", reason="FILE_GONE") from None

    async def forget(self, owner: Owner) -> int:
        """Delete all files of a run, also those that its log never came to name.

        Raises:
            Unavailable: the store is away.
        """
        return 0 if self._store is None else await self._store.delete(owner)
