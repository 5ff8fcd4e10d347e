"""`bos documents` beside `bos serve all`: files on disk are added, searched and removed."""

from __future__ import annotations

import json

import pytest

from .conftest import Folder

pytestmark = pytest.mark.e2e

PENALTY = "For each day of delay the supplier owes two percent of the price of the late goods."
FILES = {
    "agreement.md": f"# Agreement with Tamra Castings\n\n## 7. Late delivery\n\n{PENALTY}\n",
    "prices.csv": "item,price\nbearing,120\nflange,75\n",
    "minutes.html": "<html><body><h1>Minutes</h1><p>The canteen opens at noon.</p></body></html>",
}


@pytest.mark.timeout(600)
async def test_files_are_added_found_at_their_place_and_removed(folder: Folder) -> None:
    files = folder.path / "mine"
    files.mkdir()
    for name, text in FILES.items():
        (files / name).write_text(text)
    async with folder.serving():
        added = await folder.bos("documents", "add", "mine")
        listed = await folder.bos("documents", "list")
        searched = await folder.bos("documents", "search", "penalty for delay", "--limit", "1")
        (line,) = (line for line in added.out.splitlines() if "agreement.md" in line)
        removed = await folder.bos("documents", "rm", "--yes", line.split()[-1])
        left = await folder.bos("documents", "search", "penalty for delay", "--json")

    assert (added.code, added.err) == (0, "")
    assert added.out.count("ready, 1 page") == 3
    assert all(name in listed.out for name in FILES)
    place = "1. agreement.md, page 1, Agreement with Tamra Castings > 7. Late delivery"
    assert place in searched.out
    assert PENALTY in searched.out
    assert (removed.code, removed.out) == (0, "Deleted agreement.md.\n")
    texts = [each["chunk"]["text"] for each in json.loads(left.out).get("passages", [])]
    assert texts
    assert not any(PENALTY in text for text in texts)
