"""docs/architecture/promises.md names tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture" / "promises.md"
_LINK = re.compile(r"\[[^\]]+\]\(([^)#]+)\)")
_TEST = re.compile(r"`(test_\w+)`")
_TARGET = re.compile(r"`make ([\w-]+)(?: NAME=([\w-]+))?")


def attacks() -> dict[str, list[str]]:
    """Lines that name tests, by promise."""
    found: dict[str, list[str]] = {}
    for block in PAGE.read_text(encoding="utf-8").split("\n### ")[1:]:
        title, _, rest = block.partition("\n")
        found[title] = [line for line in rest.split("\n## ")[0].splitlines() if line[:2] == "* "]
    return found


def test_each_promise_names_tests_that_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    found = attacks()
    assert found
    assert [promise for promise, lines in found.items() if not lines] == []
    for line in (line for lines in found.values() for line in lines):
        files = [(PAGE.parent / link).resolve() for link in _LINK.findall(line)]
        assert files, line
        text = "".join(file.read_text(encoding="utf-8") for file in files)
        for name in _TEST.findall(line):
            assert f"def {name}(" in text, name
        for target, name in _TARGET.findall(line):
            assert f"\n{target}-{name}:".replace("-:", ":") in makefile, line


def test_no_test_of_a_trial_is_left_out() -> None:
    page = PAGE.read_text(encoding="utf-8")
    trials = sorted((ROOT / "services/gateway/tests").rglob("test_trial_*.py"))
    assert trials
    for trial in trials:
        assert f"/{trial.name})" in page
