"""Names that a file may have, and those that it may not."""

import unicodedata

import pytest

from bos_errors import InvalidArgument
from bos_files.workspaces.names import MAX_BYTES, checked_name, name_of_url


@pytest.mark.requirement("R-07", "J-01")
@pytest.mark.parametrize(
    "name",
    [
        "",
        "..",
        "../a.txt",
        "C:\\a.txt",
        "a\nb.txt",
        "invoice\u202efdp.exe",
        "a\u200bb.txt",
        ".bashrc",
        "a.txt.",
        " a.txt",
        "a  b.txt",
        "nul.txt",
        "what?.txt",
        "अ" * 86,
        "a\ud800.txt",
    ],
    ids=ascii,
)
def test_names_that_leave_the_workspace_or_deceive_are_refused(name: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        checked_name(name)
    assert refused.value.violations[0].field == "name"


@pytest.mark.parametrize(
    "name",
    ["Q2 report (final).xlsx", "क\u094d\u200dष.txt", "报告.pdf", "a" * MAX_BYTES],
)
def test_ordinary_names_of_any_language_are_kept(name: str) -> None:
    assert checked_name(name) == name


def test_names_are_composed() -> None:
    assert checked_name(unicodedata.normalize("NFD", "Übersicht.txt")) == "Übersicht.txt"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/a/report.pdf", "report.pdf"),
        ("/", "download"),
        ("/x/..\\..\\evil.exe", ".. evil.exe".strip(". ")),
        ("/a\u202eb.txt", "a b.txt"),
        ("/" + "é" * 400, "é" * 127),
    ],
)
def test_names_of_downloads_come_from_the_last_part_of_the_path(path: str, name: str) -> None:
    assert checked_name(name_of_url(path)) == name
