"""Progress of uploads: bars on a terminal, elsewhere one line for each file that ended."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bars
from rich.text import Text

from bos.documents.v1 import DocumentState
from bos_cli.render.documents import failure_text, state_text
from bos_client.text import passage_text, size_text, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rich.console import Console
    from rich.progress import TaskID

    from bos.documents.v1 import Document
    from bos_errors import BosError

_NAME_CHARS = 40
_PATH_CHARS = 300
_MESSAGE_CHARS = 500


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a file."""

    path: Path
    document: Document | None
    existed: bool = False
    error: BosError | None = None

    @property
    def failed(self) -> bool:
        """Whether it cannot be searched, and will not be."""
        return self.error is not None or (
            self.document is not None and self.document.state == DocumentState.DOCUMENT_STATE_FAILED
        )


class Progress(Protocol):
    """What is shown while files are uploaded and read."""

    def begins(self, path: Path) -> None:
        """A file is opened."""

    def sent(self, path: Path, count: int) -> None:
        """So many bytes of it were sent."""

    def reads(self, path: Path, document: Document) -> None:
        """It was uploaded, and has come so far."""

    def ended(self, outcome: Outcome) -> None:
        """Nothing more happens to it."""

    def all_ended(self, outcomes: Sequence[Outcome]) -> None:
        """Nothing more happens to any file."""


@contextmanager
def progress_on(console: Console | None, files: int) -> Iterator[Progress]:
    """Progress of ``files`` files on a console; None shows nothing."""
    if console is None or not console.is_terminal:
        yield Lines(console)
        return
    bars = Bars(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[status]}", markup=False),
        console=console,
        transient=True,
    )
    with bars:
        yield OnTerminal(bars, files)


class Lines:
    """One line for each file that ended."""

    def __init__(self, console: Console | None) -> None:
        self._console = console

    def begins(self, path: Path) -> None:
        """Shown once it has ended."""

    def sent(self, path: Path, count: int) -> None:
        """Shown once it has ended."""

    def reads(self, path: Path, document: Document) -> None:
        """Shown once it has ended."""

    def ended(self, outcome: Outcome) -> None:
        """Print the file with its outcome."""
        if self._console is not None:
            self._console.print(outcome_line(outcome))

    def all_ended(self, outcomes: Sequence[Outcome]) -> None:
        """Print how many there are, if there are several."""
        if self._console is None or len(outcomes) < 2:
            return
        failed = sum(each.failed for each in outcomes)
        self._console.print(f"{len(outcomes)} files, {failed} of them failed")


class OnTerminal(Lines):
    """A bar for each file under way: its bytes, then its pages or passages."""

    def __init__(self, bars: Bars, files: int) -> None:
        super().__init__(bars.console)
        self._bars = bars
        self._files = files
        self._of: dict[Path, TaskID] = {}
        self._all = bars.add_task("all files", total=files, status=f"0 of {files}")
        self._done = 0

    def begins(self, path: Path) -> None:
        """Add a bar."""
        try:
            size = path.stat().st_size
        except OSError:
            size = 0
        name = visible(path.name, _NAME_CHARS)
        self._of[path] = self._bars.add_task(name, total=size or None, status="uploading")

    def sent(self, path: Path, count: int) -> None:
        """Move the bar by bytes."""
        self._bars.update(self._of[path], completed=count, status=f"uploading, {size_text(count)}")

    def reads(self, path: Path, document: Document) -> None:
        """Move the bar by pages, then by passages."""
        progress = document.progress
        indexing = document.state == DocumentState.DOCUMENT_STATE_INDEXING
        done, total = progress.pages_parsed, progress.pages_total
        if indexing and progress.chunks_total:
            done, total = progress.chunks_indexed, progress.chunks_total
        self._bars.update(
            self._of[path], completed=done, total=total or None, status=state_text(document)
        )

    def ended(self, outcome: Outcome) -> None:
        """Replace the bar by a line."""
        self._bars.remove_task(self._of.pop(outcome.path))
        self._done += 1
        self._bars.update(self._all, completed=self._done, status=f"{self._done} of {self._files}")
        super().ended(outcome)


def outcome_line(outcome: Outcome) -> Text:
    """A file and what became of it."""
    mark = Text("✘ " if outcome.failed else "✔ ", style="red" if outcome.failed else "green")
    mark.append(visible(str(outcome.path), _PATH_CHARS), style="bold")
    return mark.append(f": {_what(outcome)}")


def _what(outcome: Outcome) -> str:
    document = outcome.document
    if outcome.error is not None:
        return passage_text(outcome.error.message, _MESSAGE_CHARS)
    if document is None:
        return "not uploaded"
    if outcome.failed:
        return failure_text(document)
    parts = [state_text(document)]
    if document.state == DocumentState.DOCUMENT_STATE_READY:
        parts.append(_counted(document.page_count, "page"))
        parts.append(_counted(document.chunk_count, "passage"))
        if document.pages_without_text:
            parts.append(f"{_counted(len(document.pages_without_text), 'page')} without text")
    parts += [size_text(document.size_bytes), *(["uploaded before"] if outcome.existed else [])]
    return f"{', '.join(parts)}  {visible(document.document_id)}"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
