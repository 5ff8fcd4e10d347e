"""``bos runs files``: what a run's steps made, and how it gets to this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich import box
from rich.table import Table as Grid
from rich.text import Text

from bos_cli.render import make_console
from bos_cli.session import ANSWERED, client_for, run
from bos_client.text import files_of, one_line, size_text
from bos_plainjson import plain_json

if TYPE_CHECKING:
    from bos.common.v1 import Artefact
    from bos_cli.session import Target

_MAX_NAME_CHARS = 120
_MAX_SAME_NAMES = 1000
_UNFIT = frozenset('/\\<>:"|?*')


@click.command()
@click.argument("run_id")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder to save them in; files that are there already stay as they are.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, nothing else.")
@click.pass_obj
def files(target: Target, run_id: str, output: Path | None, as_json: bool) -> None:
    """The files that a run has made, such as figures.

    They are a program's work: look at them with care.
    """

    async def work() -> int:
        async with client_for(target.connection()) as bos:
            found = await bos.get_run(run_id)
            listed = files_of(found.response)
            saved = []
            if output is not None:
                for file in listed:
                    content = await bos.download_file(run_id, file.digest)
                    saved.append(_save(output, file.name, content))
        if as_json:
            _print_json(listed, saved)
        else:
            _show(listed, saved)
        return ANSWERED

    run(work(), as_json=as_json)


def safe_name(name: str) -> str:
    """``name`` as one within the folder, also if the service sends a path."""
    text = "".join("_" if c in _UNFIT or not c.isprintable() else c for c in name)
    return text.strip(" .")[-_MAX_NAME_CHARS:] or "file"


def _save(folder: Path, name: str, content: bytes) -> Path:
    """Write a file under its name, or under one with a number where that is taken."""
    wanted = Path(safe_name(name))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(1, _MAX_SAME_NAMES):
            stem = wanted.stem if number == 1 else f"{wanted.stem}-{number}"
            path = folder / f"{stem}{wanted.suffix}"
            try:
                with path.open("xb") as file:
                    file.write(content)
            except FileExistsError:
                continue
            return path
    except OSError as error:
        raise click.ClickException(f"{folder} cannot be written to: {error.strerror}.") from error
    raise click.ClickException(f"{folder} holds too many files of the name {wanted}.")


def _print_json(listed: list[Artefact], saved: list[Path]) -> None:
    entries = [plain_json(file) for file in listed]
    for entry, path in zip(entries, saved, strict=False):
        entry["saved"] = str(path)
    click.echo(json.dumps({"files": entries}, ensure_ascii=False, indent=2))


def _show(listed: list[Artefact], saved: list[Path]) -> None:
    console = make_console()
    if not listed:
        console.print("no files")
        return
    if saved:
        for path in saved:
            console.print(Text(f"saved {path}"))
        return
    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in ("file", "type", "size"):
        grid.add_column(column, overflow="fold")
    for file in listed:
        grid.add_row(
            Text(one_line(file.name)), Text(one_line(file.media_type)), size_text(file.size_bytes)
        )
    console.print(grid)
