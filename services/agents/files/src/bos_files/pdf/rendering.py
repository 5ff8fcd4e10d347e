"""Makes PDF files in processes of their own, a few at once."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from bos_agentkit import AgentFailure
from bos_errors import InvalidArgument
from bos_files.pdf.blocks import markdown_blocks, text_blocks, visible
from bos_files.pdf.fonts import MONO, families_for
from bos_files.pdf.worker import UNKNOWN_FONT

TextFormat = Literal["markdown", "text"]
Paper = Literal["a4", "a5", "us-letter"]

PDF_NOT_MADE: Final = "PdfNotMade"
_MAX_TITLE_CHARS: Final = 300
_MAX_LISTED: Final = 40
_PORTRAIT_COLUMNS: Final = 7
"""Tables with more lay the page on its side."""
_OUTER_S: Final = 2.0
"""For the start and the end of a process, beyond the time of its work."""


@dataclass(frozen=True, slots=True)
class PdfText:
    """Text and options of a PDF."""

    text: str
    title: str = ""
    format: TextFormat = "markdown"
    paper: Paper = "a4"
    font: str = ""
    """Font family preferred to the default ones; empty: none."""


class PdfMaker:
    """Makes PDF files.

    Args:
        font_folders: Where fonts are.
        timeout_s: Time for one.
        memory_mib: Memory of one process.
        at_once: Processes at once; more wait.
    """

    def __init__(
        self,
        font_folders: Sequence[Path],
        *,
        timeout_s: float,
        memory_mib: int,
        at_once: int,
    ) -> None:
        self._folders = [str(folder) for folder in font_folders]
        self._timeout_s = timeout_s
        self._memory_mib = memory_mib
        self._places = asyncio.Semaphore(at_once)

    async def make(self, given: PdfText) -> bytes:
        """The PDF; the same text makes the same bytes.

        Raises:
            InvalidArgument: there is no font of that family; names those that there are.
            AgentFailure: it takes more time or memory than one may.
        """
        request = json.dumps(self._request(given)).encode()
        async with self._places:
            code, output = await self._run(request)
        if code == UNKNOWN_FONT:
            families = output.decode().split("\n")[:_MAX_LISTED]
            raise InvalidArgument.field("font", f"must be one of {', '.join(families)}")
        if code or not output.startswith(b"%PDF-"):
            raise AgentFailure(
                PDF_NOT_MADE,
                "The PDF could not be made within its memory and time; make the text shorter.",
                {"exit_code": code},
            )
        return output

    def _request(self, given: PdfText) -> dict[str, object]:
        to_blocks = markdown_blocks if given.format == "markdown" else text_blocks
        blocks = to_blocks(given.text)
        widest = max((len(each["head"]) for each in blocks if each["kind"] == "table"), default=0)
        families, language = families_for(given.title + given.text, given.font)
        title = " ".join(visible(given.title).split())[:_MAX_TITLE_CHARS]
        return {
            "memory_bytes": self._memory_mib * 1024 * 1024,
            "cpu_s": max(1, round(self._timeout_s)),
            "font_folders": self._folders,
            "font": given.font,
            "document": {
                "title": title,
                "paper": given.paper,
                "language": language,
                "fonts": families,
                "mono": [MONO, *families],
                "landscape": widest > _PORTRAIT_COLUMNS,
                "blocks": blocks,
            },
        }

    async def _run(self, request: bytes) -> tuple[int, bytes]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bos_files.pdf.worker"),
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            # Neither keys of models nor addresses of databases are any business of it.
            env={name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ},
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(self._timeout_s + _OUTER_S):
                output, _ = await process.communicate(request)
        except TimeoutError:
            return -1, b""
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return process.returncode or 0, output
