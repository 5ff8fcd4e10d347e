"""Large values on their way into the log and out of it: the artefact store behind the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos.runlog.v1 import LogEvent
from bos_artefacts import ArtefactDamaged, ArtefactMissing
from bos_chassis.errors import BosError, FailedPrecondition, NotFound, Unavailable
from bos_gateway.external import cut, is_large, stub_of, substitute

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bos_artefacts import Artefact, ArtefactStore, Owner
    from bos_chassis.telemetry import Telemetry


class LargeValues:
    """Events larger than a row of the log may be.

    Args:
        store: Where they go; None keeps everything in the log.
        telemetry: For the log; None where there is none, as in a command.
    """

    def __init__(self, store: ArtefactStore | None, telemetry: Telemetry | None = None) -> None:
        self._store = store
        self._log = telemetry.logger("bos.gateway.values") if telemetry else None

    @property
    def enabled(self) -> bool:
        """Whether there is a store."""
        return self._store is not None

    async def moved_out(
        self, owner: Owner, events: Sequence[LogEvent]
    ) -> tuple[list[LogEvent], list[LogEvent]]:
        """Store the large ones of these events, before they are appended.

        Returns:
            The events as they hold from now on, and as they stand in the log. A result that the
            store does not take is cut; nobody's run ends for want of the store.
        """
        whole: list[LogEvent] = []
        rows: list[LogEvent] = []
        for event in events:
            if self._store is None or not is_large(event):
                whole.append(event)
                rows.append(event)
                continue
            try:
                artefact = await self._store.put(owner, event.SerializeToString())
            except BosError as error:
                if self._log is not None:
                    self._log.warning("value not stored", run=str(owner.run_id), why=error.reason)
                smaller = cut(event)
                whole.append(smaller)
                rows.append(smaller)
            else:
                whole.append(event)
                rows.append(stub_of(event, artefact))
        return whole, rows

    async def whole(self, owner: Owner, event: LogEvent) -> LogEvent:
        """The event itself for one that was read from the log.

        Raises:
            Unavailable: the store is away, or not known here; the value may be there all the same.
        """
        if not event.HasField("external_event"):
            return event
        if self._store is None:
            raise _not_configured()
        try:
            content = await self._store.get(owner, event.external_event.digest)
            return LogEvent.FromString(content)
        except (ArtefactMissing, ArtefactDamaged) as error:
            if self._log is not None:
                self._log.error("value gone", run=str(owner.run_id), why=error.reason)
            return substitute(event)

    async def keep(self, owner: Owner, content: bytes) -> Artefact:
        """Store a file of a run; storing it again changes nothing.

        Raises:
            FailedPrecondition: there is no store.
            ArtefactTooLarge, Unavailable: the store refuses it, or is away.
        """
        if self._store is None:
            raise FailedPrecondition("No artefact store is configured (BOS_GATEWAY_ARTEFACTS_URL).")
        return await self._store.put(owner, content)

    async def kept(self, owner: Owner, digest: str) -> bytes:
        """A file of a run.

        Raises:
            NotFound: it is gone, or was damaged; that is said in the log.
            Unavailable: the store is away, or not known here; the file may be there all the same.
        """
        if self._store is None:
            raise _not_configured()
        try:
            return await self._store.get(owner, digest)
        except (ArtefactMissing, ArtefactDamaged) as error:
            if self._log is not None:
                self._log.error("file gone", run=str(owner.run_id), why=error.reason)
            raise NotFound("This file is gone.", reason="FILE_GONE") from None

    async def forget(self, owner: Owner) -> int:
        """Delete all values of a run, also those that its log never came to name.

        Raises:
            Unavailable: the store is away.
        """
        return 0 if self._store is None else await self._store.delete(owner)


def _not_configured() -> Unavailable:
    return Unavailable(
        "This run has values in an artefact store that is not configured here: "
        "set BOS_GATEWAY_ARTEFACTS_URL.",
        reason="ARTEFACTS_NOT_CONFIGURED",
        retry_after_s=1.0,
    )
