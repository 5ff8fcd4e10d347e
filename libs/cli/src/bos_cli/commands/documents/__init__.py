"""``bos documents …``: upload, list, show, delete, search."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from rich.text import Text

from bos.documents.v1 import SearchFilter
from bos_cli.commands.documents.adding import add, client_of
from bos_cli.render import make_console
from bos_cli.render.documents import documents_grid, show_document, show_passages
from bos_cli.session import ANSWERED, print_json, report, run
from bos_client.text import visible
from bos_errors import BosError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from bos_cli.session import Target

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, nothing else.")
_DAY = click.DateTime(["%Y-%m-%d"])


@click.group()
def documents() -> None:
    """Upload documents, and find passages in them."""


documents.add_command(add)


@documents.command("list")
@click.option(
    "--limit", type=click.IntRange(1, 200), default=20, show_default=True, help="Most to show."
)
@click.option("--page", default="", metavar="TOKEN", help="Where the previous page ended.")
@_json
@click.pass_obj
def list_documents(target: Target, limit: int, page: str, as_json: bool) -> None:
    """Your documents, newest first."""

    async def work() -> int:
        async with client_of(target) as client:
            found = await client.documents(page_size=limit, page_token=page)
        if as_json:
            print_json(found)
            return ANSWERED
        console = make_console()
        console.print(documents_grid(found.documents) if found.documents else "no documents")
        if found.next_page_token:
            token = visible(found.next_page_token)
            console.print(Text(f"more: bos documents list --page {token}"))
        return ANSWERED

    run(work(), as_json=as_json)


@documents.command("show")
@click.argument("document_id")
@_json
@click.pass_obj
def show(target: Target, document_id: str, as_json: bool) -> None:
    """A document: what it is about, and what could not be read."""

    async def work() -> int:
        async with client_of(target) as client:
            found = await client.document(document_id)
        if as_json:
            print_json(found)
        else:
            show_document(make_console(), found)
        return ANSWERED

    run(work(), as_json=as_json)


@documents.command("rm")
@click.argument("document_ids", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def remove(target: Target, document_ids: Sequence[str], yes: bool) -> None:
    """Delete documents: files, passages and vectors."""

    async def work() -> int:
        code = ANSWERED
        async with client_of(target) as client:
            for document_id in dict.fromkeys(document_ids):
                try:
                    name = visible((await client.document(document_id)).name)
                    if yes or click.confirm(f"Delete {name}?"):
                        await client.delete(document_id)
                        click.echo(f"Deleted {name}.")
                except BosError as error:
                    code = max(code, report(error))
        return code

    run(work())


@documents.command("search")
@click.argument("query")
@click.option("--type", "types", multiple=True, metavar="TYPE", help="Such as contract or policy.")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="What it is about.")
@click.option("--after", type=_DAY, help="Documents dated on this day or later.")
@click.option("--before", type=_DAY, help="Documents dated on this day or earlier.")
@click.option("--section", default="", metavar="WORDS", help="Below a heading with these words.")
@click.option(
    "--limit", type=click.IntRange(1, 100), default=10, show_default=True, help="Most to show."
)
@_json
@click.pass_obj
def search(
    target: Target,
    query: str,
    types: Sequence[str],
    topics: Sequence[str],
    after: datetime | None,
    before: datetime | None,
    section: str,
    limit: int,
    as_json: bool,
) -> None:
    """Find passages in your documents, best first."""
    narrowed = SearchFilter(
        document_types=types,
        topics=topics,
        date_from=_day(after),
        date_to=_day(before),
        section=section,
    )

    async def work() -> int:
        async with client_of(target) as client:
            found = await client.search(query, narrowed, limit=limit)
        if as_json:
            print_json(found)
        else:
            show_passages(make_console(), query, found)
        return ANSWERED

    run(work(), as_json=as_json)


def _day(given: datetime | None) -> str:
    return "" if given is None else given.date().isoformat()
