"""Names of files as they are shown and stored."""

import pytest

from bos_documents.store.names import shown_name


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("C:\\Users\\a\\b.pdf", "b.pdf"),
        ("a\u202efdp.exe", "a fdp.exe"),
        ("..", "document"),
        ("x\x00\n.txt", "x .txt"),
        ("n" * 400 + ".txt", "n" * 222 + "…" + "n" * 28 + ".txt"),
    ],
)
def test_name_has_no_folder_and_no_hidden_character(given: str, shown: str) -> None:
    assert shown_name(given) == shown
