"""The threat model: every wall says where it stands, and by which tests it is attacked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = re.compile(r"`([^`]+)`")
TEST = re.compile(r"^(?:async )?def test_|^func Test|^ *test(?:\.each)?\(", re.MULTILINE)
TEST_FILE = re.compile(r"test_.*\.py|.*_test\.go|.*\.(?:test|spec)\.ts")


def walls(page: str) -> list[tuple[str, list[str], list[str]]]:
    """Against what, where, and tested in, of each row."""
    table = page.partition("## Walls")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| ")]
    return [(row[0].strip(), CODE.findall(row[2]), CODE.findall(row[3])) for row in rows[1:]]


def holds_tests(path: Path) -> bool:
    """Whether there are tests in a file, or in any file of a folder."""
    files = [path] if path.is_file() else path.rglob("*")
    named = [each for each in files if TEST_FILE.fullmatch(each.name)]
    return any(TEST.search(each.read_text("utf-8")) for each in named)


def problem(where: list[str], tested: list[str]) -> str:
    """What is wrong with a row; empty if nothing."""
    if gone := [each for each in where if not (ROOT / each).exists()]:
        return f"it does not stand in {gone}"
    if not where:
        return "nobody knows where it stands"
    paths = [each for each in tested if not each.startswith("make ")]
    if empty := [each for each in paths if not holds_tests(ROOT / each)]:
        return f"there are no tests in {empty}"
    return "" if paths else "no test attacks it"


WALLS = walls((ROOT / "docs/architecture/threat-model.md").read_text("utf-8"))


def test_there_are_walls() -> None:
    assert len(WALLS) > 25
    assert len({against for against, _, _ in WALLS}) == len(WALLS)


@pytest.mark.parametrize(("against", "where", "tested"), WALLS, ids=[each[0] for each in WALLS])
def test_each_wall_stands_somewhere_and_is_attacked(
    against: str, where: list[str], tested: list[str]
) -> None:
    assert against
    assert problem(where, tested) == ""


@pytest.mark.parametrize(
    ("where", "tested", "said"),
    [
        (["libs/gone"], ["tests/docs"], "it does not stand in"),
        ([], ["tests/docs"], "nobody knows"),
        (["libs"], ["tests/docs/test_gone.py"], "there are no tests in"),
        (["libs"], ["tests/deploy/supply/sbom.py"], "there are no tests in"),
        (["libs"], ["services/console/e2e/page.ts"], "there are no tests in"),
        (["libs"], ["make check"], "no test attacks it"),
    ],
)
def test_a_row_that_names_what_there_is_not_is_found(
    where: list[str], tested: list[str], said: str
) -> None:
    assert said in problem(where, tested)
