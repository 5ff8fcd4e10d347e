"""The page on faults names tests that exist, and an alert for every fault."""

import ast
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from fault_tests import PAGE, ROOT, fault_tests


def functions(path: Path) -> set[str]:
    """Functions of a module."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {each.name for each in nodes if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}


def table() -> list[list[str]]:
    """Rows of the page's table."""
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_named_test_exists() -> None:
    found = fault_tests(PAGE.read_text(encoding="utf-8"))
    assert len(found) >= 15
    lacking = [
        f"{path}::{name}"
        for path, name in found
        if not (ROOT / path).is_file() or name not in functions(ROOT / path)
    ]
    assert lacking == []


def test_every_fault_has_what_still_works_an_alert_and_a_test() -> None:
    for row in table():
        assert len(row) == 4, row
        fault, works, alert, tests = row
        assert fault, row
        assert works, row
        assert alert.startswith("`Bos"), row
        assert fault_tests(tests), row
