"""``bos files …``: the user's workspace, listed, fetched, filled and emptied."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich import box
from rich.table import Table as Grid
from rich.text import Text

from bos_cli.commands.files import safe_name
from bos_cli.render import make_console
from bos_cli.session import ANSWERED, print_json, run
from bos_client.text import one_line, size_text, visible
from bos_client.workspace import WorkspaceClient
from bos_errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bos.files.v1 import File
    from bos_cli.session import Target

_MAX_UPLOAD_BYTES = 256 * 1024 * 1024
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, nothing else.")


@click.group("files")
def workspace() -> None:
    """Your workspace: files that runs made for you, and files that you put there."""


def _client_of(target: Target) -> WorkspaceClient:
    connection = target.connection()
    return WorkspaceClient(
        connection.files_target or connection.target,
        api_key=connection.api_key,
        tokens=connection.tokens,
    )


@workspace.command("list")
@click.option(
    "--limit", type=click.IntRange(1, 200), default=50, show_default=True, help="Most to show."
)
@click.option("--page", default="", metavar="TOKEN", help="Where the previous page ended.")
@_json
@click.pass_obj
def list_files(target: Target, limit: int, page: str, as_json: bool) -> None:
    """Your files, in the order of their names."""

    async def work() -> int:
        async with _client_of(target) as client:
            found = await client.files(page_size=limit, page_token=page)
        if as_json:
            print_json(found)
            return ANSWERED
        console = make_console()
        console.print(_grid(found.files) if found.files else "no files")
        usage = found.usage
        console.print(
            Text(
                f"{usage.files} of {usage.max_files} files, {size_text(usage.size_bytes)} of "
                f"{size_text(usage.max_bytes)} with earlier versions",
                style="dim",
            )
        )
        if found.next_page_token:
            console.print(Text(f"more: bos files list --page {visible(found.next_page_token)}"))
        return ANSWERED

    run(work(), as_json=as_json)


@workspace.command("get")
@click.argument("name")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="File or folder to save it in; by default this folder.",
)
@click.option("--version", type=click.IntRange(0), default=0, help="A kept version by its number.")
@click.option("--force", is_flag=True, help="Overwrite a file that is there.")
@click.pass_obj
def get_file(target: Target, name: str, output: Path | None, version: int, force: bool) -> None:
    """Save a file on this machine. Its content is untrusted: run nothing of it."""

    async def work() -> int:
        async with _client_of(target) as client:
            file, content = await client.download(name, version=version)
        path = _place(output, file.name)
        try:
            with path.open("wb" if force else "xb") as saved:
                saved.write(content)
        except FileExistsError:
            raise click.ClickException(
                f"{path} is there already; name another file with --output, or use --force."
            ) from None
        except OSError as error:
            raise click.ClickException(f"{path} cannot be written: {error.strerror}.") from error
        click.echo(f"saved {one_line(str(path))} ({size_text(len(content))})")
        return ANSWERED

    run(work())


@workspace.command("put")
@click.argument("path", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--name", help="Its name in the workspace; by default that of the file.")
@_json
@click.pass_obj
def put_file(target: Target, path: Path, name: str | None, as_json: bool) -> None:
    """Put a file into the workspace; other content under its name is kept as an earlier version."""

    async def work() -> int:
        content = _content(path)
        wanted = unicodedata.normalize("NFC", name or path.name)
        async with _client_of(target) as client:
            done = await client.upload(wanted, content)
        if as_json:
            print_json(done)
        else:
            said = "was there already" if done.existed else f"version {done.file.version}"
            click.echo(f"{one_line(done.file.name)}: {said}")
        return ANSWERED

    run(work(), as_json=as_json)


@workspace.command("rm")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def remove_file(target: Target, name: str, yes: bool) -> None:
    """Delete a file of the workspace with all its versions."""
    if not yes:
        click.confirm(f"Delete {one_line(name)} with all its versions?", abort=True)

    async def work() -> int:
        async with _client_of(target) as client:
            await client.delete(name)
        click.echo(f"deleted {one_line(name)}")
        return ANSWERED

    run(work())


def _content(path: Path) -> bytes:
    try:
        if path.stat().st_size > _MAX_UPLOAD_BYTES:
            raise InvalidArgument(
                f"{path} is larger than any file of a workspace.", reason="FILE_TOO_LARGE"
            )
        return path.read_bytes()
    except OSError as error:
        raise InvalidArgument(
            f"{path} cannot be read: {error.strerror}.", reason="FILE_UNREADABLE"
        ) from error


def _place(output: Path | None, name: str) -> Path:
    if output is None:
        return Path(safe_name(name))
    return output / safe_name(name) if output.is_dir() else output


def _grid(files: Iterable[File]) -> Grid:
    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in ("file", "size", "type", "version", "written"):
        grid.add_column(column, overflow="fold")
    for file in files:
        grid.add_row(
            Text(one_line(file.name)),
            size_text(file.size_bytes),
            Text(one_line(file.media_type)),
            str(file.version),
            f"{file.update_time.ToDatetime():%Y-%m-%d %H:%M}",
        )
    return grid
