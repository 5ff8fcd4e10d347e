"""Files of a step: from an agent's stream into the artefact store and the result.

They wait in memory for the result, because only a result that counts gives them a meaning; their
bounds are those of the contract (``bos.agent.v1.FileChunk``), and one for all steps of the process.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final

from attrs import define, field

from bos.common.v1 import Artefact
from bos_errors import BosError

if TYPE_CHECKING:
    from bos.agent.v1 import AgentResult, FileChunk
    from bos_artefacts import Artefact as Blob
    from bos_artefacts import Owner
    from bos_gateway.effects.memory_budget import MemoryBudget
    from bos_gateway.run_log.run_files import RunFiles

MAX_FILES: Final = 16
MAX_FILE_BYTES: Final = 4 * 1024 * 1024
MAX_FILES_BYTES: Final = 6 * 1024 * 1024
"""Of all files of a step together."""

_MAX_NAME_BYTES: Final = 255
_MEDIA_TYPE: Final = re.compile(r"[a-z]+/[a-z0-9.+-]{1,80}")


@define(eq=False)
class _File:
    name: str
    media_type: str
    problem: str
    content: bytearray = field(init=False, factory=bytearray)


@define(eq=False)
class StepFiles:
    """The files that one call of an agent sends, in memory as long as this object is."""

    _budget: MemoryBudget
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
        """Store the files that were received completely.

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
            return "its name is invalid"
        return ""

    def _grow(self, file: _File, content: bytes) -> None:
        held = sum(len(each.content) for each in (*self._files, file))
        if len(file.content) + len(content) > MAX_FILE_BYTES:
            file.problem = f"it has more than {MAX_FILE_BYTES} bytes"
        elif held + len(content) > MAX_FILES_BYTES:
            file.problem = f"all files of a step may have {MAX_FILES_BYTES} bytes"
        elif not self._budget.take(file, len(content)):
            file.problem = "the service holds too many files at the moment"
        else:
            file.content += content
            return
        self._budget.free(file)
        file.content.clear()

    def _leave_out(self, file: _File, problem: str) -> None:
        if len(self._left_out) < MAX_FILES:
            shown = file.name[:80] if file.name.isprintable() and file.name else "without a name"
            self._left_out.append(f"The file {shown} was not kept: {problem}.")


def refer_to_kept_files(result: AgentResult) -> None:
    """Let the charts of a result name files that it lists, as it lists them, and no others."""
    kept = {file.digest: file for file in result.files}
    for chart in result.charts:
        specification = kept.get(chart.specification.digest)
        chart.ClearField("specification")
        if specification is not None:
            chart.specification.CopyFrom(specification)
        images = [kept[image.digest] for image in chart.images if image.digest in kept]
        del chart.images[:]
        chart.images.extend(images)


def _listed(file: _File, blob: Blob) -> Artefact:
    fit = _MEDIA_TYPE.fullmatch(file.media_type)
    return Artefact(
        digest=f"sha256:{blob.digest}",
        media_type=file.media_type if fit else "application/octet-stream",
        name=file.name,
        size_bytes=blob.size_bytes,
    )
