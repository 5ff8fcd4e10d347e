"""Pages that name tests name those that exist: promises, faults and the threat model."""

import ast
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from fault_tests import PAGE, ROOT, fault_tests

PROMISES = ROOT / "docs/architecture/promises.md"
MODEL = (ROOT / "docs/architecture/threat-model.md").read_text("utf-8")
CODE = re.compile(r"`([^`]+)`")
TEST = re.compile(r"^(?:async )?def test_|^func Test|^ *test(?:\.each)?\(", re.MULTILINE)
TEST_FILE = re.compile(r"test_.*\.py|.*_test\.go|.*\.(?:test|spec)\.ts")
_LINK = re.compile(r"\[[^\]]+\]\(([^)#]+)\)")
_TEST = re.compile(r"`(test_\w+)`")
_TARGET = re.compile(r"`make ([\w-]+)(?: NAME=([\w-]+))?")


def rows(page: str) -> list[list[str]]:
    """Cells of a page's tables, without their heads."""
    lines = [line for line in page.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def functions(path: Path) -> set[str]:
    """Functions of a module."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {each.name for each in nodes if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_fault_has_what_still_works_an_alert_and_tests_that_exist() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert len(fault_tests(page)) >= 15
    for row in rows(page):
        fault, works, alert, tests = row
        assert fault, row
        assert works, row
        assert alert.startswith("`Bos"), row
        assert fault_tests(tests), row
        for path, name in fault_tests(tests):
            assert name in functions(ROOT / path), path


def test_each_promise_names_tests_that_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    page = PROMISES.read_text(encoding="utf-8")
    promises = page.split("\n### ")[1:]
    assert promises
    for block in promises:
        lines = [each for each in block.split("\n## ")[0].splitlines() if each[:2] == "* "]
        assert lines, block
        for line in lines:
            files = [(PROMISES.parent / link).resolve() for link in _LINK.findall(line)]
            assert files, line
            text = "".join(file.read_text(encoding="utf-8") for file in files)
            for name in _TEST.findall(line):
                assert f"def {name}(" in text, name
            for target, name in _TARGET.findall(line):
                assert f"\n{target}-{name}:".replace("-:", ":") in makefile, line
    for trial in (ROOT / "services/gateway/tests").rglob("test_trial_*.py"):
        assert f"/{trial.name})" in page, "a trial that no promise names"


def holds_tests(path: Path) -> bool:
    """Whether there are tests in a file, or in any file of a folder."""
    files = [path] if path.is_file() else path.rglob("*")
    named = [each for each in files if TEST_FILE.fullmatch(each.name)]
    return any(TEST.search(each.read_text("utf-8")) for each in named)


def problem(where: list[str], tested: list[str]) -> str:
    """What is wrong with a boundary of the threat model; empty if nothing."""
    if gone := [each for each in where if not (ROOT / each).exists()]:
        return f"there is no {gone}"
    if not where:
        return "no code enforces it"
    paths = [each for each in tested if not each.startswith("make ")]
    if empty := [each for each in paths if not holds_tests(ROOT / each)]:
        return f"there are no tests in {empty}"
    return "" if paths else "no test attacks it"


def test_each_boundary_is_named_once_exists_and_is_attacked() -> None:
    boundaries = rows(MODEL.partition("## Mechanisms")[2].partition("\n## ")[0])
    assert len({row[0] for row in boundaries}) == len(boundaries) > 25
    found = {row[0]: problem(CODE.findall(row[2]), CODE.findall(row[3])) for row in boundaries}
    assert not {against: text for against, text in found.items() if text}


def test_boundaries_without_code_or_tests_are_found() -> None:
    for where, tested, said in (
        (["libs/gone"], ["tests/docs"], "there is no"),
        ([], ["tests/docs"], "no code enforces it"),
        (["libs"], ["tests/docs/test_gone.py"], "there are no tests in"),
        (["libs"], ["tests/deploy/supply/sbom.py"], "there are no tests in"),
        (["libs"], ["make check"], "no test attacks it"),
    ):
        assert said in problem(where, tested), (where, tested)
