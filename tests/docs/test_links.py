"""What README and docs name exists: links, anchors, files, commands of make."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
MAKE = re.compile(r"\bmake ([a-z][a-z-]*)")
TARGET = re.compile(r"^([a-z][a-z-]*):", re.MULTILINE)
TOP = ("libs", "services", "protos", "tests", "docs")
# Built or made at run time, or by readers of the page about adding an agent.
NOT_IN_THE_TREE = ("services/agents/summary", "tests/test_summary.py")


def pages() -> list[object]:
    return [pytest.param(page, id=str(page.relative_to(ROOT))) for page in PAGES]


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as web views of repositories make them."""
    plain = FENCE.sub("", page.read_text(encoding="utf-8"))
    titles = (re.sub(r"[^\w\- ]", "", title.lower()) for title in HEADING.findall(plain))
    return {title.strip().replace(" ", "-") for title in titles}


def links(page: Path) -> list[str]:
    plain = FENCE.sub("", page.read_text(encoding="utf-8"))
    return [link for link in LINK.findall(plain) if "://" not in link]


def paths(page: Path) -> set[str]:
    """Paths in backticks: from the root, or from the folder of a member's page."""
    plain = FENCE.sub("", page.read_text(encoding="utf-8"))
    found = {code.rstrip("/") for code in CODE.findall(plain)}
    return {
        path
        for path in found
        if re.fullmatch(r"[\w.-]+(/[\w.-]+)+", path)
        and path.partition("/")[0] in TOP
        and not path.startswith(NOT_IN_THE_TREE)
    }


@pytest.mark.parametrize("page", pages())
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert not broken


@pytest.mark.parametrize("page", pages())
def test_files_that_are_named_exist(page: Path) -> None:
    assert not {path for path in paths(page) if not (ROOT / path).exists()}


@pytest.mark.parametrize("page", pages())
def test_commands_of_make_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    fenced = "\n".join(FENCE.findall(text))
    code = CODE.findall(FENCE.sub("", text))
    named = {
        name
        for piece in (*code, *fenced.splitlines())
        if piece.lstrip().startswith("make ")
        for name in MAKE.findall(piece)
    }
    assert named <= set(TARGET.findall((ROOT / "Makefile").read_text(encoding="utf-8")))


def test_readme_and_index_lead_to_every_page() -> None:
    entries = [ROOT / "README.md", ROOT / "docs/README.md"]
    named = {
        (entry.parent / link.partition("#")[0]).resolve()
        for entry in entries
        for link in links(entry)
    }
    assert {page for page in PAGES if page not in entries} <= named
