"""``bos documents add``: uploads several files at once and waits until they are read."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bos.documents.v1 import DocumentState
from bos_cli.commands.documents.progress import Outcome, progress_on
from bos_cli.commands.documents.selecting import MAX_FILES, TooManyFiles, selected
from bos_cli.render import make_console
from bos_cli.session import ANSWERED, FAILED, INTERRUPTED, error_json, run
from bos_client.documents import DocumentsClient, has_ended
from bos_errors import BosError
from bos_plainjson import plain_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from bos_cli.commands.documents.progress import Progress
    from bos_cli.session import Target

_READY = DocumentState.DOCUMENT_STATE_READY


@dataclass(frozen=True, slots=True)
class _Options:
    document_type: str
    document_date: str
    wait: bool
    within_s: float


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--type", "document_type", default="", help="Kind of all of them, such as contract.")
@click.option(
    "--date", "day", type=click.DateTime(["%Y-%m-%d"]), help="Date that all of them bear."
)
@click.option("--no-wait", is_flag=True, help="Do not wait until they are read.")
@click.option(
    "--timeout",
    "within_s",
    type=click.FloatRange(min=1),
    default=3600.0,
    show_default=True,
    help="Seconds to wait for the reading of each.",
)
@click.option(
    "--jobs", type=click.IntRange(1, 8), default=4, show_default=True, help="Files at once."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, nothing else.")
@click.pass_obj
def add(
    target: Target,
    paths: Sequence[Path],
    document_type: str,
    day: datetime | None,
    no_wait: bool,
    within_s: float,
    jobs: int,
    as_json: bool,
) -> None:
    """Upload files, and the documents in folders.

    A file that fails does not stop the others; the exit code is 1 then. The same content again is
    the same document. Ctrl-C leaves no half documents: what is uploaded goes on being read.
    """
    options = _Options(
        document_type, "" if day is None else day.date().isoformat(), not no_wait, within_s
    )

    async def work() -> int:
        try:
            selection = await asyncio.to_thread(selected, paths)
        except TooManyFiles:
            raise click.UsageError(
                f"These folders hold more than {MAX_FILES} files; name folders in them."
            ) from None
        if selection.passed_over and not as_json:
            click.echo(
                f"{selection.passed_over} files of other kinds are left out; name one to upload "
                "it.",
                err=True,
            )
        if not selection.files:
            raise click.UsageError("There are no documents in what you named.")
        async with client_of(target) as client:
            # What holds for all files, such as a wrong key, is said once.
            await client.documents(page_size=1)
            outcomes, interrupted = await _added(client, selection.files, options, jobs, as_json)
        if as_json:
            click.echo(json.dumps(_as_dict(outcomes, interrupted), ensure_ascii=False, indent=2))
        if interrupted:
            left = len(selection.files) - len(outcomes)
            click.echo(
                f"\nInterrupted: {left} of {len(selection.files)} files not ended. Uploaded ones "
                "go on being read: bos documents list",
                err=True,
            )
            return INTERRUPTED
        return FAILED if any(each.failed for each in outcomes) else ANSWERED

    run(work(), as_json=as_json)


def client_of(target: Target) -> DocumentsClient:
    """A client of the documents service that options, environment or the standalone name."""
    connection = target.connection()
    return DocumentsClient(
        connection.documents_target or connection.target,
        api_key=connection.api_key,
        tokens=connection.tokens,
    )


async def _added(
    client: DocumentsClient,
    files: Sequence[Path],
    options: _Options,
    jobs: int,
    quiet: bool,
) -> tuple[list[Outcome], bool]:
    """Outcomes of the files that ended, in their order, and whether Ctrl-C came before the rest."""
    outcomes: dict[int, Outcome] = {}
    waiting = iter(enumerate(files))
    with progress_on(None if quiet else make_console(), len(files)) as progress:

        async def one_after_another(waiting: Iterator[tuple[int, Path]]) -> None:
            for place, path in waiting:
                outcomes[place] = await _one(client, path, options, progress)
                progress.ended(outcomes[place])

        interrupted = False
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(jobs, len(files))):
                    group.create_task(one_after_another(waiting))
        except asyncio.CancelledError:
            interrupted = True
        found = [outcomes[place] for place in sorted(outcomes)]
        if not interrupted:
            progress.all_ended(found)
    return found, interrupted


async def _one(
    client: DocumentsClient, path: Path, options: _Options, progress: Progress
) -> Outcome:
    progress.begins(path)
    uploaded = None
    try:
        response = await client.upload(
            path,
            document_type=options.document_type,
            document_date=options.document_date,
            sent=lambda count: progress.sent(path, count),
        )
        uploaded = response.document
        progress.reads(path, uploaded)
        if options.wait and not has_ended(uploaded):
            watched = client.watch(uploaded.document_id, within_s=options.within_s)
            async with aclosing(watched):
                async for document in watched:
                    uploaded = document
                    progress.reads(path, uploaded)
    except BosError as error:
        return Outcome(path, uploaded, error=error)
    return Outcome(path, uploaded, existed=response.existed)


def _as_dict(outcomes: Sequence[Outcome], interrupted: bool) -> dict[str, Any]:
    entries = []
    for each in outcomes:
        entry: dict[str, Any] = {"path": str(each.path).encode("utf-8", "replace").decode()}
        if each.document is not None:
            entry["existed"] = each.existed
            entry["document"] = plain_json(each.document)
        if each.error is not None:
            entry["error"] = error_json(each.error)
        entries.append(entry)
    return {"documents": entries, **({"interrupted": True} if interrupted else {})}
