"""Files attached to a step's result; the gateway stores and lists them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from bos.agent.v1 import FileChunk
from bos.common.v1 import Artefact

MAX_FILES: Final = 16
MAX_FILE_BYTES: Final = 4 * 1024 * 1024
MAX_FILES_BYTES: Final = 6 * 1024 * 1024
"""Total size of the files of a step."""

_CHUNK_BYTES: Final = 1024 * 1024
_MAX_NAME_BYTES: Final = 255
_MEDIA_TYPE: Final = re.compile(r"[a-z]+/[a-z0-9.+-]{1,80}")


@dataclass(frozen=True, slots=True)
class _File:
    name: str
    media_type: str
    content: bytes

    @property
    def reference(self) -> Artefact:
        return Artefact(
            digest=f"sha256:{hashlib.sha256(self.content).hexdigest()}",
            media_type=self.media_type,
            name=self.name,
            size_bytes=len(self.content),
        )


class Files:
    """Files of one step, in order of attachment."""

    def __init__(self) -> None:
        self._files: list[_File] = []

    @property
    def names(self) -> list[str]:
        """Names of the files attached so far."""
        return [file.name for file in self._files]

    def add(self, name: str, media_type: str, content: bytes) -> Artefact:
        """Add a file; see :meth:`bos_agentkit.AgentTask.attach_file`."""
        problem = self._problem(name, media_type, content)
        if problem:
            raise ValueError(problem)
        file = _File(name, media_type, content)
        self._files.append(file)
        return file.reference

    def chunks(self) -> Iterator[FileChunk]:
        """Yield the chunks of all files, file after file, as the agent contract defines them."""
        for file in self._files:
            starts = range(0, max(1, len(file.content)), _CHUNK_BYTES)
            for start in starts:
                yield FileChunk(
                    name="" if start else file.name,
                    media_type="" if start else file.media_type,
                    content=file.content[start : start + _CHUNK_BYTES],
                    last=start == starts[-1],
                )

    def _problem(self, name: str, media_type: str, content: bytes) -> str:
        if not name.isprintable() or len(name.encode()) > _MAX_NAME_BYTES:
            return "the name of a file must be printable and at most 255 bytes long"
        if name in ("", ".", "..") or "/" in name or "\\" in name:
            return "the name of a file must hold no folder"
        if not _MEDIA_TYPE.fullmatch(media_type):
            return f"{media_type!r} is no media type such as image/png"
        if len(self._files) >= MAX_FILES:
            return f"a step may have {MAX_FILES} files"
        held = sum(len(file.content) for file in self._files)
        if len(content) > MAX_FILE_BYTES or held + len(content) > MAX_FILES_BYTES:
            return (
                f"a file may have {MAX_FILE_BYTES} bytes, and all files of a step {MAX_FILES_BYTES}"
            )
        return ""
