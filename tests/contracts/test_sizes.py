"""The check of sizes finds what is one too many, and nothing at the limit."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import sizes


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("libs/a/src/bos_a/b.py", 500),
        ("libs/a/tests/test_b.py", 500),
        ("services/rest/main.go", 500),
        ("docs/page.md", 150),
    ],
)
def test_a_file_at_its_limit_passes_and_one_line_more_does_not(name: str, limit: int) -> None:
    assert sizes.faults({name: limit}) == []
    assert sizes.faults({name: limit + 1}) == [f"{name}: {limit + 1} lines, at most {limit}"]


def test_a_folder_of_15_modules_and_its_init_passes_and_16_do_not() -> None:
    modules = {f"libs/a/src/bos_a/m{i}.py": 1 for i in range(15)}
    modules["libs/a/src/bos_a/__init__.py"] = 1
    assert sizes.faults(modules) == []
    modules["libs/a/src/bos_a/m15.py"] = 1
    assert sizes.faults(modules) == ["libs/a/src/bos_a: 16 modules, at most 15"]


def test_generated_code_and_excepted_pages_may_be_long() -> None:
    long = {"libs/protos/src/bos/a_pb2.py": 9000, **dict.fromkeys(sizes.LONG_PAGES, 9000)}
    assert sizes.faults(long) == []
