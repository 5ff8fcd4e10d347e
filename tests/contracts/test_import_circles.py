"""The check for import circles finds them; `make check` runs it."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import import_circles


@pytest.mark.parametrize(
    ("imports", "expected"),
    [
        pytest.param({"a": {"b"}, "b": {"c"}, "c": set()}, [], id="a line"),
        pytest.param({"a": {"b", "c"}, "b": {"c"}, "c": set()}, [], id="two ways to one module"),
        pytest.param({"a": {"b"}, "b": {"a"}}, [["a", "b"]], id="two modules"),
        pytest.param({"a": {"a"}}, [["a"]], id="a module of itself"),
        pytest.param(
            {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}},
            [["a", "b", "c"], ["d", "e"]],
            id="two circles, and what leads into them",
        ),
    ],
)
def test_circles_are_modules_that_reach_one_another(
    imports: dict[str, set[str]], expected: list[list[str]]
) -> None:
    assert import_circles.circles(imports) == expected


def test_import_for_type_checking_or_inside_a_function_makes_a_circle_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "rounded"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "upper.py").write_text("from rounded.lower import low\n")
    (package / "lower.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from rounded.upper import up\n"
    )
    (package / "late.py").write_text("def f():\n    from rounded import later\n")
    (package / "later.py").write_text("from rounded.late import f\n")
    monkeypatch.syspath_prepend(tmp_path)
    imports = import_circles.imports_of(["rounded"])
    found = import_circles.circles(imports)
    assert found == [["rounded.late", "rounded.later"], ["rounded.lower", "rounded.upper"]]
    assert list(import_circles.steps(found[1], imports)) == [
        "  rounded.lower imports rounded.upper",
        "  rounded.upper imports rounded.lower",
    ]


def test_typescript_files_that_import_one_another_are_a_circle(tmp_path: Path) -> None:
    (tmp_path / "a.ts").write_text('import type { B } from "./below/b";\n')
    (tmp_path / "below").mkdir()
    (tmp_path / "below/b.tsx").write_text('import {\n  a,\n} from "../a";\nexport * from "./c";\n')
    (tmp_path / "below/c.ts").write_text('import "react";\n')
    imports = import_circles.typescript_imports(tmp_path)
    assert import_circles.circles(imports) == [["a.ts", "below/b.tsx"]]
