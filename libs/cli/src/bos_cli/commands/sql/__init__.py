"""``bos sql …``: verify the query of a run, list verified queries, take one back."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Final

import click

from bos_cli.session import ANSWERED, print_json, run
from bos_client.text import one_line, time_text, visible
from bos_client.verified_queries import VerifiedQueryClient

if TYPE_CHECKING:
    from bos.gateway.v1 import VerifiedQuery
    from bos_cli.session import Target

_MAX_SQL_CHARS: Final = 6_000
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, nothing else.")


@click.group()
def sql() -> None:
    """Mark queries as right, so that similar questions are answered like them."""


@sql.command("verify")
@click.argument("run_id")
@click.option("--step", "step_id", default="", help="The step, if several asked a database.")
@click.option("--group", default="", help="Share it with this group of yours (approvers only).")
@click.option(
    "--sql",
    "corrected",
    type=click.File(encoding="utf-8"),
    help="File with the query that is right instead of the one that ran; - reads it from here.",
)
@_json
@click.pass_obj
def verify(
    target: Target, run_id: str, step_id: str, group: str, corrected: IO[str] | None, as_json: bool
) -> None:
    """Mark the question and the query of one of your runs as right."""
    text = "" if corrected is None else _read(corrected)

    async def work() -> int:
        async with _client(target) as client:
            made = await client.verify(run_id, step_id=step_id, group=group, corrected_sql=text)
        if as_json:
            print_json(made)
        else:
            click.echo(_shown(made))
            click.echo(f"Take it back: bos sql unverify {visible(made.query_id)}")
        return ANSWERED

    run(work(), as_json=as_json)


@sql.command("verified")
@click.option(
    "--limit", type=click.IntRange(1, 200), default=20, show_default=True, help="Most to show."
)
@click.option("--page", default="", metavar="TOKEN", help="Where the previous page ended.")
@_json
@click.pass_obj
def verified(target: Target, limit: int, page: str, as_json: bool) -> None:
    """Your verified queries and those of your groups, newest first."""

    async def work() -> int:
        async with _client(target) as client:
            found = await client.verified(page_size=limit, page_token=page)
        if as_json:
            print_json(found)
        else:
            shown = [_shown(each) for each in found.verified_queries]
            click.echo("\n\n".join(shown) or "no verified queries")
            if found.next_page_token:
                click.echo(f"\nMore: bos sql verified --page {visible(found.next_page_token)}")
        return ANSWERED

    run(work(), as_json=as_json)


@sql.command("unverify")
@click.argument("query_id")
@_json
@click.pass_obj
def unverify(target: Target, query_id: str, as_json: bool) -> None:
    """Take a verification back: yours, or as an approver one of a group of yours."""

    async def work() -> int:
        async with _client(target) as client:
            await client.unverify(query_id)
        click.echo("{}" if as_json else "Taken back.")
        return ANSWERED

    run(work(), as_json=as_json)


def _read(file: IO[str]) -> str:
    """The text of a file, of which no more is read than a query may have."""
    try:
        text = file.read(_MAX_SQL_CHARS + 1)
    except UnicodeDecodeError:
        raise click.UsageError("--sql: the file is no text in UTF-8.") from None
    if len(text) > _MAX_SQL_CHARS:
        raise click.UsageError(f"--sql: the file has over {_MAX_SQL_CHARS} characters.")
    if not text.strip():
        raise click.UsageError("--sql: the file is empty.")
    return text


def _shown(query: VerifiedQuery) -> str:
    """A verified query on a few lines; no line of its text can pass for one of ours."""
    readers = f"group {one_line(query.group)}" if query.group else "you alone"
    about = [
        visible(query.query_id),
        time_text(query.create_time),
        f"for {readers}",
        *(["corrected"] if query.corrected else []),
        *([] if query.own else ["by another member"]),
    ]
    lines = [visible(line) for line in query.query.sql.split("\n")]
    return "\n".join(
        [
            "; ".join(about),
            f"  Question: {one_line(query.question)}",
            f"  Database: {one_line(query.query.database)}",
            *(f"    {line}" for line in lines),
        ]
    )


def _client(target: Target) -> VerifiedQueryClient:
    connection = target.connection()
    return VerifiedQueryClient(
        connection.target, api_key=connection.api_key, tokens=connection.tokens
    )
