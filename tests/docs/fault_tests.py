"""Prints the tests that docs/operations/faults.md names, for ``make trial NAME=faults``."""

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs/operations/faults.md"
_TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")


def fault_tests(page: str) -> list[tuple[str, str]]:
    """Files and functions of the tests that a page names, each once."""
    return list(dict.fromkeys(_TEST.findall(page)))


if __name__ == "__main__":
    for path, name in fault_tests(PAGE.read_text(encoding="utf-8")):
        print(f"{path}::{name}")
