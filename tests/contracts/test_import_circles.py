"""The check for import circles finds them; `make check` runs it."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import import_circles


@pytest.mark.parametrize(
    ("source", "circle"),
    [
        ("def f():\n    from rounded import upper\n", ["rounded.lower", "rounded.upper"]),
        (
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import rounded.upper\n",
            ["rounded.lower", "rounded.upper"],
        ),
        ("import json\n", []),
    ],
    ids=["inside a function", "for type checking", "a line"],
)
def test_imports_wherever_they_stand_make_a_circle(
    source: str, circle: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "rounded"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "upper.py").write_text("from rounded.lower import low\n")
    (package / "lower.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    found = import_circles.circle(import_circles.imports_of(["rounded"]))
    assert sorted(set(found)) == circle
    assert found[:1] == found[-1:]


def test_typescript_files_that_import_one_another_are_a_circle(tmp_path: Path) -> None:
    (tmp_path / "a.ts").write_text('import type { B } from "./below/b";\n')
    (tmp_path / "below").mkdir()
    (tmp_path / "below/b.tsx").write_text('import {\n  a,\n} from "../a";\nexport * from "./c";\n')
    (tmp_path / "below/c.ts").write_text('import "react";\n')
    imports = import_circles.typescript_imports(tmp_path)
    assert {*import_circles.circle(imports)} == {"a.ts", "below/b.tsx"}
