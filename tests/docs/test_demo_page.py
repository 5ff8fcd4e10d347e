"""docs/demo.md lists every question that the demo answers."""

import sys
from pathlib import Path

import pytest

from bos_demo.dialogues import load_approved, load_clarified, load_followups
from bos_demo.questions import load_every_question

sys.path.append(str(Path(__file__).parents[2] / "services/demo"))
from demo_page import main, render

PAGE = Path(__file__).parents[2] / "docs/demo.md"


def test_page_is_what_the_questions_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == render() + "\n", (
        "Write the page anew: python services/demo/demo_page.py docs/demo.md"
    )


def test_page_lists_every_question_once_with_its_agents() -> None:
    page = render()
    singles = load_every_question()
    dialogues = (*load_approved(), *load_clarified(), *load_followups())
    for each in (*singles, *dialogues):
        assert page.count(f"| {' '.join(each.question.split())} |") == 1
    assert f"each of the {len(singles) + len(dialogues)} questions" in page
    assert "| sql → computation |" in page


def test_command_writes_the_page(tmp_path: Path) -> None:
    main([str(tmp_path / "page.md")])
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == render() + "\n"
    with pytest.raises(SystemExit, match="usage"):
        main([])
