"""docs/reference/errors.md names every error that the code raises."""

import sys
from pathlib import Path

import pytest

from bos_errors import AgentErrorType

sys.path.append(str(Path(__file__).parents[2] / "libs/errors"))
from errors_reference import collected, main, render

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/errors.md"


def test_page_is_what_the_code_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), (
        "Write the page anew: python libs/errors/errors_reference.py docs/reference/errors.md"
    )


@pytest.mark.parametrize(
    ("reason", "code", "place", "http"),
    [
        ("REQUEST_ID_REUSED", "ALREADY_EXISTS", "gateway", set()),  # a call with a reason
        ("MODEL_RATE_LIMITED", "RESOURCE_EXHAUSTED", "all", set()),  # a class's default
        ("DOCUMENT_EMPTY", "INVALID_ARGUMENT", "documents", set()),
        ("BODY_TOO_LARGE", "INVALID_ARGUMENT", "REST", {413}),  # written in Go
        ("CREDENTIAL_MISSING", "UNAUTHENTICATED", "REST", {401}),  # by a helper
        ("UNIMPLEMENTED", "UNIMPLEMENTED", "REST", set()),  # of a table
    ],
)
def test_reasons_of_all_kinds_of_sources_are_found(
    reason: str, code: str, place: str, http: set[int]
) -> None:
    found = collected()[reason, code]
    assert place in found.places
    assert http <= found.http
    assert all(found.messages)


def test_every_type_of_a_failed_step_is_on_the_page() -> None:
    page = render()
    assert not [each for each in AgentErrorType if f"| `{each}` |" not in page]


def test_command_writes_the_page(tmp_path: Path) -> None:
    main([str(tmp_path / "page.md")])
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == render()
    with pytest.raises(SystemExit, match="usage"):
        main([])
