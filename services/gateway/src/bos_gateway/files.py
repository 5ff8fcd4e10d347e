"""Files of runs: from an agent's stream into the artefact store, and listed in a step's result.

They wait in memory for the result, because only a result that counts gives them a meaning; their
bounds are those of the contract (``bos.agent.v1.FileChunk``), and one for all steps of the process.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final

from attrs import define, field

from bos.common.v1 import Artefact
from bos_artefacts import ArtefactDamaged, ArtefactMissing
from bos_chassis.errors import BosError, FailedPrecondition, NotFound, Unavailable
from bos_postgres import fetchval

if TYPE_CHECKING:
    import asyncpg

    from bos.agent.v1 import FileChunk
    from bos_artefacts import Artefact as Blob
    from bos_artefacts import ArtefactStore, Owner
    from bos_chassis.telemetry import Telemetry
    from bos_gateway.effects import Room

MAX_FILES: Final = 16
MAX_FILE_BYTES: Final = 4 * 1024 * 1024
MAX_FILES_BYTES: Final = 6 * 1024 * 1024
"""Of all files of a step together."""

_MAX_NAME_BYTES: Final = 255
_MEDIA_TYPE: Final = re.compile(r"[a-z]+/[a-z0-9.+-]{1,80}")
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

        The run is marked before the store is asked, so that whoever deletes a run knows whether
        the store may hold anything of it, whatever the log came to say.

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
                log.error("file gone", run=str(owner.run_id), why=error.reason)
            raise NotFound("This file is gone.", reason="FILE_GONE") from None

    async def forget(self, owner: Owner) -> int:
        """Delete all files of a run, also those that its log never came to name.

        Raises:
            Unavailable: the store is away.
        """
        return 0 if self._store is None else await self._store.delete(owner)


@define(eq=False)
class _File:
    name: str
    media_type: str
    problem: str
    content: bytearray = field(init=False, factory=bytearray)


@define(eq=False)
class StepFiles:
    """The files that one call of an agent sends, in memory as long as this object is."""

    _room: Room
    """Where they wait."""
    _files: list[_File] = field(init=False, factory=list)
    _under_way: _File | None = field(init=False, default=None)
    _left_out: list[str] = field(init=False, factory=list)

    def take(self, chunk: FileChunk) -> None:
        """The next part of a file; what is too much or unfit is dropped and remembered as such."""
        file = self._under_way
        if file is None:
            file = self._under_way = _File(chunk.name, chunk.media_type, self._problem(chunk.name))
        if not file.problem:
            self._grow(file, chunk.content)
        if chunk.last:
            self._under_way = None
            if file.problem:
                self._leave_out(file, file.problem)
            else:
                self._files.append(file)

    async def store(
        self, owner: Owner, kept: RunFiles, timeout_s: float
    ) -> tuple[list[Artefact], list[str]]:
        """Store what has come in whole.

        Returns:
            The files as results list them, and in sentences what was left out and why. A store that
            is missing, refuses or is slow costs the files and nothing else.
        """
        if self._under_way is not None:
            self._leave_out(self._under_way, "it did not arrive whole")
        stored: list[Artefact] = []
        why = ""
        try:
            async with asyncio.timeout(timeout_s):
                for file in self._files:
                    blob = await kept.keep(owner, bytes(file.content))
                    stored.append(_listed(file, blob))
        except TimeoutError:
            why = "the artefact store took too long"
        except BosError as error:
            why = error.message.rstrip(".")
        for file in self._files[len(stored) :]:
            self._leave_out(file, why)
        return stored, self._left_out

    def _problem(self, name: str) -> str:
        if len(self._files) >= MAX_FILES:
            return f"a step may have {MAX_FILES} files"
        leads_away = name in ("", ".", "..") or "/" in name or "\\" in name
        if leads_away or not name.isprintable() or len(name.encode()) > _MAX_NAME_BYTES:
            return "its name is not fit"
        return ""

    def _grow(self, file: _File, content: bytes) -> None:
        held = sum(len(each.content) for each in (*self._files, file))
        if len(file.content) + len(content) > MAX_FILE_BYTES:
            file.problem = f"it has more than {MAX_FILE_BYTES} bytes"
        elif held + len(content) > MAX_FILES_BYTES:
            file.problem = f"all files of a step may have {MAX_FILES_BYTES} bytes"
        elif not self._room.take(file, len(content)):
            file.problem = "the service holds too many files at the moment"
        else:
            file.content += content
            return
        self._room.free(file)
        file.content.clear()

    def _leave_out(self, file: _File, problem: str) -> None:
        if len(self._left_out) < MAX_FILES:
            shown = file.name[:80] if file.name.isprintable() and file.name else "without a name"
            self._left_out.append(f"The file {shown} was not kept: {problem}.")


def _listed(file: _File, blob: Blob) -> Artefact:
    fit = _MEDIA_TYPE.fullmatch(file.media_type)
    return Artefact(
        digest=f"sha256:{blob.digest}",
        media_type=file.media_type if fit else "application/octet-stream",
        name=file.name,
        size_bytes=blob.size_bytes,
    )
