"""Pictures within a terminal: which protocol it has, and what is written to it."""

from __future__ import annotations

import base64
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bos.common.v1 import Artefact
    from bos.gateway.v1 import OrchestratorResponse

MAX_IMAGES = 4
"""Of one answer; more are listed only."""
MAX_IMAGE_BYTES = 4 * 1024 * 1024
_MAX_COLUMNS = 100
_CHUNK_CHARS = 4096
_PNG = b"\x89PNG\r\n\x1a\n"
_KITTY_TERMS = frozenset({"xterm-kitty", "xterm-ghostty"})
_ITERM_PROGRAMS = frozenset({"iTerm.app", "WezTerm"})
_FIRST_KONSOLE = 220400  # 22.04 draws kitty graphics


class ImageProtocol(StrEnum):
    """How a terminal is sent a picture."""

    KITTY = "kitty"
    ITERM = "iterm"


def image_protocol(environment: Mapping[str, str]) -> ImageProtocol | None:
    """The protocol of the terminal that the environment names; None where it is not known.

    Only the environment is asked: a query would be answered into what the user types. Inside tmux
    and screen, which pass no pictures on, there is none.
    """
    term = environment.get("TERM", "")
    if environment.get("TMUX") or environment.get("STY") or term.startswith(("screen", "tmux")):
        return None
    program = environment.get("TERM_PROGRAM", "")
    if term in _KITTY_TERMS or environment.get("KITTY_WINDOW_ID") or program == "ghostty":
        return ImageProtocol.KITTY
    version = environment.get("KONSOLE_VERSION", "")
    if version.isdecimal() and int(version) >= _FIRST_KONSOLE:
        return ImageProtocol.KITTY
    if program in _ITERM_PROGRAMS or environment.get("LC_TERMINAL") == "iTerm2":
        return ImageProtocol.ITERM
    return None


def chart_images(response: OrchestratorResponse) -> list[Artefact]:
    """The PNG pictures of the charts of a response that may be shown, each once, in order."""
    found = {
        image.digest: image
        for chart in response.charts
        for image in chart.images
        if image.media_type == "image/png" and 0 < image.size_bytes <= MAX_IMAGE_BYTES
    }
    return list(found.values())[:MAX_IMAGES]


def image_text(content: bytes, protocol: ImageProtocol, columns: int) -> str:
    """What is written to show a PNG picture ``columns`` wide; empty if it is none.

    The picture travels in base64, so nothing of it can be read as a command of the terminal.
    """
    if not content.startswith(_PNG) or len(content) > MAX_IMAGE_BYTES:
        return ""
    width = max(1, min(columns, _MAX_COLUMNS))
    encoded = base64.b64encode(content).decode()
    if protocol is ImageProtocol.ITERM:
        about = f"inline=1;size={len(content)};width={width};preserveAspectRatio=1"
        return f"\x1b]1337;File={about}:{encoded}\x07\n"
    return "".join(_kitty_chunks(encoded, width)) + "\n"


def _kitty_chunks(encoded: str, width: int) -> Iterator[str]:
    """Escape sequences of at most 4096 characters of data, as the protocol demands."""
    starts = range(0, len(encoded), _CHUNK_CHARS)
    for start in starts:
        more = int(start != starts[-1])
        # q=2: the terminal answers nothing, which would end up in the shell.
        control = f"a=T,f=100,q=2,c={width},m={more}" if start == 0 else f"q=2,m={more}"
        yield f"\x1b_G{control};{encoded[start : start + _CHUNK_CHARS]}\x1b\\"
