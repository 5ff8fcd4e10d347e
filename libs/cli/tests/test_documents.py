"""What is uploaded of folders, and how progress, passages and quotations are shown."""

import io
import unicodedata
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import Progress as Bars

from bos.common.v1 import Source, SourceType
from bos.documents.v1 import (
    Chunk,
    Document,
    DocumentFailure,
    DocumentMatch,
    DocumentProgress,
    DocumentState,
    Passage,
    SearchDocumentsResponse,
)
from bos_cli.commands.documents import selecting
from bos_cli.commands.documents.progress import OnTerminal, Outcome, outcome_line, progress_on
from bos_cli.commands.documents.selecting import TooManyFiles, selected
from bos_cli.render import View, make_console
from bos_cli.render.documents import excerpt, show_document, show_passages, state_text
from bos_cli.render.parts import show_outcome
from bos_errors import InvalidArgument
from bos_testkit.scripted_gateway import response

HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
JOINERS = {"\u200c", "\u200d"}


def hidden_in(text: str) -> set[str]:
    return {each for each in text if unicodedata.category(each) in HIDDEN} - {"\n"}


def test_folders_are_searched_and_named_files_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / ".git").mkdir()
    for name in ("z.PDF", "a.md", "c.png", ".hidden.txt", "b/x.docx", ".git/y.txt"):
        (tmp_path / name).touch()
    (tmp_path / "linked.txt").symlink_to(tmp_path / "a.md")
    (tmp_path / "loop").symlink_to(tmp_path)

    found = selected([tmp_path / "c.png", tmp_path, tmp_path / "a.md", Path("absent")])

    names = [str(path).removeprefix(f"{tmp_path}/") for path in found.files]
    assert names == ["c.png", "a.md", "z.PDF", "b/x.docx", "absent"]
    assert found.passed_over == 2  # c.png again, and the link to a file
    monkeypatch.setattr(selecting, "MAX_FILES", 2)
    with pytest.raises(TooManyFiles):
        selected([tmp_path])


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (DocumentState.DOCUMENT_STATE_QUEUED, "waiting"),
        (DocumentState.DOCUMENT_STATE_PARSING, "reading, page 3 of 12"),
        (DocumentState.DOCUMENT_STATE_INDEXING, "indexing, passage 5 of 40"),
        (DocumentState.DOCUMENT_STATE_READY, "ready"),
        (DocumentState.DOCUMENT_STATE_FAILED, "failed"),
    ],
)
def test_state_says_how_far_a_document_has_come(state: DocumentState, expected: str) -> None:
    progress = DocumentProgress(pages_parsed=3, pages_total=12, chunks_indexed=5, chunks_total=40)
    assert state_text(Document(state=state, progress=progress)) == expected


def test_terminal_shows_a_bar_of_bytes_then_of_pages_then_a_line() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=120)
    with Bars(console=console, auto_refresh=False) as bars:
        shown = OnTerminal(bars, files=2)
        path = Path("a\x1b[2J.pdf")
        shown.begins(path)
        (task,) = [each for each in bars.tasks if each.description != "all files"]
        shown.sent(path, 2048)
        assert (task.completed, task.fields["status"]) == (2048, "uploading, 2.0 KiB")
        progress = DocumentProgress(pages_parsed=3, pages_total=12)
        reading = Document(state=DocumentState.DOCUMENT_STATE_PARSING, progress=progress)
        shown.reads(path, reading)
        assert (task.completed, task.total) == (3, 12)
        assert task.description == "a\\u{1B}[2J.pdf"
        shown.ended(Outcome(path, Document(state=DocumentState.DOCUMENT_STATE_READY)))
        (whole,) = bars.tasks
        assert (whole.completed, whole.fields["status"]) == (1, "1 of 2")
    assert "a\\u{1B}[2J.pdf" in file.getvalue()


def test_where_there_is_no_terminal_one_line_says_what_became_of_a_file() -> None:
    file = io.StringIO()
    with progress_on(make_console(file), 2) as progress:
        path = Path("a.pdf")
        progress.begins(path)
        progress.sent(path, 10)
        progress.reads(path, Document())
        assert file.getvalue() == ""
        refused = Outcome(path, None, error=InvalidArgument("It is too large."))
        progress.ended(refused)
        progress.all_ended([refused, refused])
    assert file.getvalue() == "✘ a.pdf: It is too large.\n2 files, 2 of them failed\n"
    with progress_on(None, 2) as progress:
        progress.ended(refused)


def test_nothing_of_a_document_moves_the_cursor_or_hides_text() -> None:
    text = "terms \u202e\x1b[2J\u200b\U000e0041.pdf"  # the whole corpus: test_text.py of the client
    chunk = Chunk(text=text, document_name=text, section_path=[text], first_page=1, last_page=2)
    found = SearchDocumentsResponse(
        passages=[Passage(chunk=chunk)],
        documents_searched=1,
        documents=[DocumentMatch(document_name=text)],
    )
    document = Document(
        name=text,
        document_id=text,
        document_type=text,
        topics=[text],
        description=text,
        notes=[text],
        failure=DocumentFailure(reason=text, message=text),
        state=DocumentState.DOCUMENT_STATE_FAILED,
    )
    outcome = response()
    del outcome.sources[:]
    outcome.sources.add(
        type=SourceType.SOURCE_TYPE_DOCUMENT, title=text, section=text, excerpt=text, page=1
    )
    file = io.StringIO()
    console = make_console(file)
    show_passages(console, text, found)
    show_document(console, document)
    show_outcome(console, outcome, View())
    console.print(outcome_line(Outcome(Path("x"), document)))
    assert hidden_in(file.getvalue()) - JOINERS == set()


def test_source_of_a_document_shows_place_and_quotation_and_others_one_line() -> None:
    outcome = response()
    outcome.sources.append(
        Source(
            type=SourceType.SOURCE_TYPE_DOCUMENT,
            title="terms.pdf",
            page=3,
            section="Terms > Penalty",
            excerpt="Two percent\n of the price.",
        )
    )
    outcome.sources.add(type=SourceType.SOURCE_TYPE_DOCUMENT, title="bare.txt")
    file = io.StringIO()
    show_outcome(make_console(file), outcome, View())
    assert (
        "  [1] customers: Companies that buy from us\n"
        "  [2] terms.pdf, page 3, Terms > Penalty\n"
        "      “Two percent of the price.”\n"
        "  [3] bare.txt\n"
    ) in file.getvalue()


def test_excerpt_is_the_part_around_a_word_of_the_query() -> None:
    text = f"{'before ' * 50}the Penalty is due {'after ' * 50}"
    part = excerpt(text, "penalty?", 80)
    assert "the Penalty is due" in part
    assert part.startswith("… ")
    assert part.endswith(" …")
    assert len(part) <= 84
    assert excerpt(text, "nowhere", 80).startswith("before before")
    assert excerpt("short text", "penalty", 80) == "short text"
    assert excerpt(text, "(*[", 80).startswith("before before")
