"""Files of a step: from an agent's stream into the artefact store, and listed in its result.

They wait in memory for the result, because only a result that counts gives them a meaning; their
bounds are those of the contract (``bos.agent.v1.FileChunk``), and one for all steps of the process.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

from bos.common.v1 import Artefact
from bos_chassis.errors import BosError

if TYPE_CHECKING:
    from bos.agent.v1 import FileChunk
    from bos_artefacts import Artefact as Blob
    from bos_artefacts import Owner
    from bos_gateway.files import RunFiles

MAX_FILES: Final = 16
MAX_FILE_BYTES: Final = 4 * 1024 * 1024
MAX_FILES_BYTES: Final = 6 * 1024 * 1024
"""Of all files of a step together."""
PLAIN_TYPE: Final = "application/octet-stream"

_MAX_NAME_BYTES: Final = 255
_MEDIA_TYPE: Final = re.compile(r"[a-z]+/[a-z0-9.+-]{1,80}")


@dataclass(slots=True)
class _File:
    name: str
    media_type: str
    content: bytearray = field(default_factory=bytearray)
    problem: str = ""


class FileRoom:
    """Memory for files that wait, shared by all steps of the process.

    Args:
        max_bytes: Of all of them together.
    """

    def __init__(self, max_bytes: int) -> None:
        self._left = max_bytes

    def take(self, size: int) -> bool:
        """Whether there is room for that many bytes more; if so, they are taken."""
        if size > self._left:
            return False
        self._left -= size
        return True

    def give_back(self, size: int) -> None:
        """That many bytes are not held any more."""
        self._left += size


class StepFiles:
    """The files that one call of an agent sends; a context manager, behind which none is held.

    Args:
        room: Where they wait.
    """

    def __init__(self, room: FileRoom) -> None:
        self._room = room
        self._files: list[_File] = []
        self._under_way: _File | None = None
        self._held = 0
        self._left_out: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._room.give_back(self._held)
        self._held = 0
        self._files.clear()

    def take(self, chunk: FileChunk) -> None:
        """The next part of a file; what is too much or unfit is dropped and remembered as such."""
        file = self._under_way
        if file is None:
            file = self._under_way = _File(chunk.name, chunk.media_type)
            file.problem = self._problem(file)
        if not file.problem:
            self._grow(file, chunk.content)
        if chunk.last:
            self._under_way = None
            if file.problem:
                self._leave_out(file)
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
            self._under_way.problem = "it did not arrive whole"
            self._leave_out(self._under_way)
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
            file.problem = why
            self._leave_out(file)
        return stored, self._left_out

    def _problem(self, file: _File) -> str:
        if len(self._files) >= MAX_FILES:
            return f"a step may have {MAX_FILES} files"
        name = file.name
        if not name.isprintable() or len(name.encode()) > _MAX_NAME_BYTES:
            return "its name is not fit"
        if name in ("", ".", "..") or "/" in name or "\\" in name:
            return "its name is not fit"
        return ""

    def _grow(self, file: _File, content: bytes) -> None:
        if len(file.content) + len(content) > MAX_FILE_BYTES:
            file.problem = f"it has more than {MAX_FILE_BYTES} bytes"
        elif self._held + len(content) > MAX_FILES_BYTES:
            file.problem = f"all files of a step may have {MAX_FILES_BYTES} bytes"
        elif not self._room.take(len(content)):
            file.problem = "the service holds too many files at the moment"
        else:
            file.content += content
            self._held += len(content)
            return
        self._room.give_back(len(file.content))
        self._held -= len(file.content)
        file.content.clear()

    def _leave_out(self, file: _File) -> None:
        if len(self._left_out) < MAX_FILES:
            shown = file.name[:80] if file.name.isprintable() and file.name else "without a name"
            self._left_out.append(f"The file {shown} was not kept: {file.problem}.")


def _listed(file: _File, blob: Blob) -> Artefact:
    fit = _MEDIA_TYPE.fullmatch(file.media_type)
    return Artefact(
        digest=f"sha256:{blob.digest}",
        media_type=file.media_type if fit else PLAIN_TYPE,
        name=file.name,
        size_bytes=blob.size_bytes,
    )
