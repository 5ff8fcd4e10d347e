"""What README and docs name exists: links, anchors, files, commands of make."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
MAKE = re.compile(r"\bmake ([a-z][a-z-]*)(?: NAME=([a-z-]+))?(?: ONLY=([\w./-]+))?")
TARGET = re.compile(r"^([a-z][a-z-]*):", re.MULTILINE)
TOP = ("libs", "services", "protos", "tests", "docs")
# Built or made at run time, or by readers of the page about adding an agent.
NOT_IN_THE_TREE = ("services/agents/summary", "tests/test_summary.py")


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


def test_links_lead_somewhere() -> None:
    broken = []
    for page in PAGES:
        for link in links(page):
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if not target.exists() or (anchor and anchor not in anchors(target)):
                broken.append(f"{page.relative_to(ROOT)}: {link}")
    assert not broken


def test_named_files_exist() -> None:
    assert not [
        f"{page.relative_to(ROOT)}: {path}"
        for page in PAGES
        for path in paths(page)
        if not (ROOT / path).exists()
    ]


def test_make_commands_exist() -> None:
    targets = set(TARGET.findall((ROOT / "Makefile").read_text(encoding="utf-8")))
    assert {"trial-crash", "bench-engine"} <= targets
    unknown = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        fenced = "\n".join(FENCE.findall(text))
        code = CODE.findall(FENCE.sub("", text))
        for piece in (*code, *fenced.splitlines()):
            for target, name, only in MAKE.findall(piece) if piece.lstrip()[:5] == "make " else ():
                found = (f"{target}-{name}" if name else target) in targets
                if not found or ("/" in only and not (ROOT / only).exists()):
                    unknown.append(f"{page.relative_to(ROOT)}: {piece}")
    assert not unknown


def test_readme_and_index_lead_to_every_page() -> None:
    entries = [ROOT / "README.md", ROOT / "docs/README.md"]
    named = {
        (entry.parent / link.partition("#")[0]).resolve()
        for entry in entries
        for link in links(entry)
    }
    assert {page for page in PAGES if page not in entries} <= named
