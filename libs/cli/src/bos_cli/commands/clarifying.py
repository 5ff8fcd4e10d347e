"""Settling at the terminal what a question left open."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from bos.gateway.v1 import RunStatus
from bos_cli.commands.approvals import line_from_terminal
from bos_client.text import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bos.common.v1 import Clarification
    from bos.gateway.v1 import OrchestratorResponse

_BY_NUMBER = "A number, your own words, or Enter to leave it open: "
_BY_WORDS = "Your own words, or Enter to leave it open: "


def asks(response: OrchestratorResponse | None) -> bool:
    """Whether the run ended with questions."""
    return response is not None and response.status == RunStatus.RUN_STATUS_CLARIFICATION_NEEDED


def is_interactive() -> bool:
    """Whether a person sits at the terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


async def reply_to(clarification: Clarification) -> str:
    """What the user replies, one line per question that was settled; empty if none was."""
    lines = []
    for question in clarification.questions:
        click.echo(f"\n{one_line(question.question)}")
        click.echo(_BY_NUMBER if question.options else _BY_WORDS, nl=False)
        said = chosen(await line_from_terminal(), question.options)
        if said:
            lines.append(f"{question.question} {said}")
    return "\n".join(lines)


def chosen(said: str, options: Sequence[str]) -> str:
    """The option of this number, counted from 1, or what was said."""
    text = said.strip()
    if text.isascii() and text.isdigit() and 1 <= int(text[:4]) <= len(options):
        return options[int(text[:4]) - 1]
    return text
