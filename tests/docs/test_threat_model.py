"""The threat model: each boundary names the code that enforces it and the tests that attack it."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
CODE = re.compile(r"`([^`]+)`")
TEST = re.compile(r"^(?:async )?def test_|^func Test|^ *test(?:\.each)?\(", re.MULTILINE)
TEST_FILE = re.compile(r"test_.*\.py|.*_test\.go|.*\.(?:test|spec)\.ts")


def boundaries(page: str) -> list[tuple[str, list[str], list[str]]]:
    """Against what, where, and tested in, of each row."""
    table = page.partition("## Mechanisms")[2].partition("\n## ")[0]
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
        return f"there is no {gone}"
    if not where:
        return "no code enforces it"
    paths = [each for each in tested if not each.startswith("make ")]
    if empty := [each for each in paths if not holds_tests(ROOT / each)]:
        return f"there are no tests in {empty}"
    return "" if paths else "no test attacks it"


BOUNDARIES = boundaries((ROOT / "docs/architecture/threat-model.md").read_text("utf-8"))


def test_boundaries_are_named_once() -> None:
    assert len(BOUNDARIES) > 25
    names = {against for against, _, _ in BOUNDARIES}
    assert len(names) == len(BOUNDARIES)
    assert all(names)


def test_each_boundary_exists_and_is_attacked() -> None:
    found = {against: problem(where, tested) for against, where, tested in BOUNDARIES}
    assert not {against: text for against, text in found.items() if text}


def test_rows_with_missing_code_or_tests_are_found() -> None:
    for where, tested, said in (
        (["libs/gone"], ["tests/docs"], "there is no"),
        ([], ["tests/docs"], "no code enforces it"),
        (["libs"], ["tests/docs/test_gone.py"], "there are no tests in"),
        (["libs"], ["tests/deploy/supply/sbom.py"], "there are no tests in"),
        (["libs"], ["services/console/e2e/page.ts"], "there are no tests in"),
        (["libs"], ["make check"], "no test attacks it"),
    ):
        assert said in problem(where, tested), (where, tested)
