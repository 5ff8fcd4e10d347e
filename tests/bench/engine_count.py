"""``make bench NAME=lines``: how much product code the gateway's package is.

::

    python tests/bench/engine_count.py [--at COMMIT]...

Counts lines of Python and of SQL migrations that are neither blank nor a comment, in the work tree
and at each commit named. Docstrings are documentation, so they are counted apart: neither does
leaving them out make the code smaller, nor does writing them make it larger.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import sys
import tokenize
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PACKAGE = "services/gateway/src"
_SUFFIXES = (".py", ".sql")
_NOTHING = frozenset(
    {
        *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
        *(tokenize.ENCODING, tokenize.ENDMARKER),
    }
)


@dataclass(frozen=True, slots=True)
class Count:
    """Lines of some files."""

    python: int = 0
    sql: int = 0
    docstrings: int = 0

    @property
    def code(self) -> int:
        """What counts: neither blank, nor a comment, nor a docstring."""
        return self.python + self.sql

    def __add__(self, other: Count) -> Count:
        return Count(
            self.python + other.python, self.sql + other.sql, self.docstrings + other.docstrings
        )


def count(name: str, text: str) -> Count:
    """The lines of one file."""
    return Count(sql=_sql(text)) if name.endswith(".sql") else _python(text)


def _sql(text: str) -> int:
    """Migrations have no comments but those that begin with two dashes."""
    return sum(not line.strip().startswith("--") for line in text.splitlines() if line.strip())


def _python(text: str) -> Count:
    lines = text.splitlines()
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NOTHING:
            code.update(range(token.start[0], token.end[0] + 1))
    code = {number for number in code if lines[number - 1].strip()}
    documented = {number for number in _docstrings(ast.parse(text)) if number in code}
    return Count(python=len(code - documented), docstrings=len(documented))


def _docstrings(tree: ast.Module) -> Iterator[int]:
    """Numbers of the lines of docstrings, those below attributes included."""
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            if (
                isinstance(child, ast.Expr)
                and isinstance(child.value, ast.Constant)
                and isinstance(child.value.value, str)
            ):
                yield from range(child.lineno, (child.end_lineno or child.lineno) + 1)


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(ROOT), *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout


def files(commit: str | None) -> Iterator[tuple[str, str]]:
    """Name and text of every file of the package, in the work tree or at a commit."""
    if commit is None:
        for path in sorted((ROOT / PACKAGE).rglob("*")):
            if path.suffix in _SUFFIXES:
                yield path.name, path.read_text(encoding="utf-8")
        return
    for name in _git("ls-tree", "-r", "--name-only", commit, "--", PACKAGE).splitlines():
        if name.endswith(_SUFFIXES):
            yield name, _git("show", f"{commit}:{name}")


def package(commit: str | None) -> Count:
    """The whole package."""
    return sum((count(name, text) for name, text in files(commit)), Count())


def main() -> int:
    parser = argparse.ArgumentParser(description="Counts the product code of the gateway.")
    parser.add_argument("--at", action="append", default=[], help="a commit to compare with")
    options = parser.parse_args()
    print(f"{'':>14} {'code':>7} {'Python':>7} {'SQL':>7} {'docstrings':>11}")
    now = package(None)
    for name, found in [*((at, package(at)) for at in options.at), ("work tree", now)]:
        print(
            f"{name:>14} {found.code:>7} {found.python:>7} {found.sql:>7} {found.docstrings:>11}"
            + (f"   {now.code - found.code:+} since" if found is not now else "")
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
