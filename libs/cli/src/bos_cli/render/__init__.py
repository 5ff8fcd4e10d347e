"""Showing runs to people."""

from __future__ import annotations

import sys
from typing import TextIO

from rich.console import Console

from bos_cli.render.parts import View
from bos_cli.render.run_view import RunView, show_run

__all__ = ["RunView", "View", "make_console", "show_run"]

# Without a terminal, lines are as long as they are: a program may read them.
_UNBOUNDED_WIDTH = 10_000


def make_console(file: TextIO | None = None) -> Console:
    """A console on ``file`` (stdout): colours and a status line on a terminal, else plain lines."""
    file = file or sys.stdout
    if file.isatty():
        return Console(file=file, highlight=False, emoji=False)
    return Console(
        file=file,
        highlight=False,
        emoji=False,
        no_color=True,
        force_terminal=False,
        width=_UNBOUNDED_WIDTH,
    )
