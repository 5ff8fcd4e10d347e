"""Pages made from code and data say what these say; each has a command that writes it."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bos_demo.dialogues import load_approved, load_clarified, load_followups
from bos_demo.questions import load_every_question
from bos_errors import AgentErrorType
from bos_sqlguard import DIALECTS, load_functions, load_rules

ROOT = Path(__file__).parents[2]
for folder in ("libs/chassis", "libs/errors", "libs/sqlguard", "services/demo"):
    sys.path.append(str(ROOT / folder))
import demo_page  # noqa: E402
import errors_reference  # noqa: E402
import rules_reference  # noqa: E402
import settings_reference  # noqa: E402


class Generated(NamedTuple):
    """A page, what it should hold, and the command."""

    page: str
    render: Callable[[], str]
    command: Any


PAGES = (
    Generated("docs/demo.md", lambda: demo_page.render() + "\n", demo_page),
    Generated("docs/reference/errors.md", errors_reference.render, errors_reference),
    Generated("docs/reference/sql-guard-rules.md", rules_reference.render, rules_reference),
    Generated(
        "docs/reference/configuration.md",
        lambda: settings_reference.render(settings_reference.settings_classes()),
        settings_reference,
    ),
)


@pytest.mark.requirement("N-11")
@pytest.mark.parametrize("generated", PAGES, ids=lambda each: each.page)
def test_page_is_what_its_command_writes(generated: Generated, tmp_path: Path) -> None:
    page, render, command = generated
    generated.command.main([str(tmp_path / "page.md")])
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == render()
    script = Path(command.__file__).relative_to(ROOT)
    assert (ROOT / page).read_text(encoding="utf-8") == render(), f"run: python {script} {page}"
    with pytest.raises(SystemExit, match="usage"):
        command.main(["one", "two"])


def test_demo_page_lists_every_question_once_with_its_agents() -> None:
    page = demo_page.render()
    singles = load_every_question()
    dialogues = (*load_approved(), *load_clarified(), *load_followups())
    for each in (*singles, *dialogues):
        assert page.count(f"| {' '.join(each.question.split())} |") == 1
    assert f"each of the {len(singles) + len(dialogues)} questions" in page
    assert "| sql → computation |" in page


@pytest.mark.parametrize(
    ("reason", "code", "place", "http"),
    [
        ("REQUEST_ID_REUSED", "ALREADY_EXISTS", "gateway", set()),  # a call with a reason
        ("MODEL_RATE_LIMITED", "RESOURCE_EXHAUSTED", "all", set()),  # a class's default
        ("BODY_TOO_LARGE", "INVALID_ARGUMENT", "REST", {413}),  # written in Go
        ("CREDENTIAL_MISSING", "UNAUTHENTICATED", "REST", {401}),  # by a helper
        ("UNIMPLEMENTED", "UNIMPLEMENTED", "REST", set()),  # of a table
    ],
)
def test_reasons_of_all_kinds_of_sources_are_found(
    reason: str, code: str, place: str, http: set[int]
) -> None:
    found = errors_reference.collected()[reason, code]
    assert place in found.places
    assert http <= found.http
    assert all(found.messages)
    page = errors_reference.render()
    assert not [each for each in AgentErrorType if f"| `{each}` |" not in page]


def test_every_rule_of_the_guard_is_on_its_page_and_named_by_services() -> None:
    page = rules_reference.render()
    assert re.findall(r"^\| `([A-Z_]+)` \|", page, re.MULTILINE) == list(load_rules())
    for dialect in DIALECTS:
        assert not [f for f in load_functions(dialect).scalar if f"`{f}`" not in page]
    sources = [*ROOT.glob("libs/sqlguard/src/**/*.py"), *ROOT.glob("services/mcp_db/src/**/*.py")]
    text = "\n".join(source.read_text(encoding="utf-8") for source in sources)
    assert not {rule for rule in load_rules() if f'"{rule}"' not in text}
