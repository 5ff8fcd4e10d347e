"""Requirements and the tests that show them: written to a page, and checked.

python tests/docs/requirements_page.py          # checks; exit code 1 names what is wrong
python tests/docs/requirements_page.py --write  # writes docs/reference/requirements.md anew

Tests are read, not run: a mark is ``@pytest.mark.requirement("…")`` on a function or class,
``pytestmark`` of a module, or ``marks=`` of a parameter; in a browser test ``{ tag: ["@…"] }``.
"""

import ast
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = Path("docs/reference/requirements.md")
DATA = Path(__file__).relative_to(ROOT).with_name("requirements.toml")
_PREFACE = """\
# Requirements

What Bos has to do, and the tests that show it, read from their marks. `open`: no test shows it yet.
`make check` fails when this page is out of date. The sentences are in
`tests/docs/requirements.toml`; to write this page anew:
`.venv/bin/python tests/docs/requirements_page.py --write`.
"""
_MARK = "requirement"
# Of Playwright: test("title", { tag: ["@…"] }, ...
_TAGGED = re.compile(
    r"""\btest\(\s*(?P<quote>["`])(?P<title>[^"`\n]+)(?P=quote),\s*"""
    r"""\{\s*tag:\s*(?P<tags>"[^"\n]*"|\[[^\]]*\])\s*\}"""
)
_NAMED_SINGLY = 2
# Names of documents and decisions that no reader of this repository has, none of them here.
_FOREIGN = r"DEC-\d\d|X-\d\d|[S]PEC|[D]ESIGN"


@dataclass(frozen=True)
class Mark:
    """One mark: the ids that it names, and what carries it (a module as a whole: empty)."""

    ids: tuple[str, ...]
    target: str
    lines: range


@dataclass
class Found:
    """What the tests and the tree hold."""

    shown: dict[str, list[tuple[Path, str]]] = field(default_factory=lambda: defaultdict(list))
    wrong: list[str] = field(default_factory=list)


def requirements() -> dict[str, dict[str, str]]:
    """Sentences by id, in sections."""
    return tomllib.loads((ROOT / DATA).read_text("utf-8"))


def tracked() -> list[Path]:
    """Files of the repository that exist, new ones that are not ignored included."""
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout.split("\0")
    return sorted(Path(name) for name in set(names) if name and (ROOT / name).is_file())


def is_test(path: Path) -> bool:
    """Whether marks may stand in the file."""
    return (path.suffix == ".py" and "tests" in path.parts) or path.name.endswith(".spec.ts")


def tags(source: str) -> list[Mark]:
    """All marks in the source of browser tests."""
    return [
        Mark(
            tuple(re.findall(r'"@([A-Z]-\d\d)"', found["tags"])),
            found["title"],
            range(source.count("\n", 0, found.start()), source.count("\n", 0, found.end()) + 1),
        )
        for found in _TAGGED.finditer(source)
    ]


def marks(source: str) -> list[Mark]:
    """All marks in the source of a test module.

    Raises:
        ValueError: a mark names nothing, something twice, or what only running would tell.
    """
    return sorted(_marks(ast.parse(source), ""), key=lambda mark: mark.lines.start)


def _marks(node: ast.AST, target: str) -> Iterator[Mark]:
    for child in ast.iter_child_nodes(node):
        inner = target
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{target}::{child.name}" if target else child.name
        if isinstance(child, ast.Call) and _is_mark(child.func):
            yield _mark(child, inner)
        else:
            yield from _marks(child, inner)


def _is_mark(function: ast.expr) -> bool:
    return ast.unparse(function) == f"pytest.mark.{_MARK}"


def _mark(call: ast.Call, target: str) -> Mark:
    values = [arg.value if isinstance(arg, ast.Constant) else None for arg in call.args]
    ids = tuple(value for value in values if isinstance(value, str))
    if not ids or len(ids) != len(values) or len(set(ids)) != len(ids) or call.keywords:
        message = f"line {call.lineno}: a mark names one or more ids as plain text, each once"
        raise ValueError(message)
    return Mark(ids, target, range(call.lineno - 1, (call.end_lineno or call.lineno)))


def mentions(text: str, ids: Iterable[str], exempt: Iterable[range] = ()) -> list[tuple[int, str]]:
    """Lines (from 1) of ``text`` that name an id or a foreign document, outside of ``exempt``."""
    pattern = re.compile(rf"(?<![\w-])(?:{'|'.join([*ids, _FOREIGN])})(?![\w-])")
    skipped = {line for lines in exempt for line in lines}
    return [
        (number + 1, match[0])
        for number, line in enumerate(text.split("\n"))
        if number not in skipped
        for match in pattern.finditer(line)
    ]


def survey(ids: Sequence[str], files: Mapping[Path, str]) -> Found:
    """The tests by the ids that they show, and what must not be there."""
    found = Found()
    for path, text in files.items():
        named = []
        if is_test(path):
            try:
                named = _named(path, text)
            except ValueError as error:
                found.wrong.append(f"{path}, {error}")
        for mark in named:
            for name in mark.ids:
                if name not in ids:
                    found.wrong.append(f"{path}:{mark.lines.start + 1}: {name} is not in {DATA}")
                elif (path, mark.target) not in found.shown[name]:
                    found.shown[name].append((path, mark.target))
        found.wrong.extend(
            f"{path}:{line}: {name} stands here. State the rule itself; ids belong to "
            f"@pytest.mark.{_MARK} on tests"
            for line, name in mentions(text, ids, (mark.lines for mark in named))
        )
    return found


def _named(path: Path, text: str) -> list[Mark]:
    if path.suffix != ".py":
        return tags(text)
    return marks(text) if f"mark.{_MARK}" in text else []


def page(sections: Mapping[str, Mapping[str, str]], found: Found) -> str:
    """The page."""
    ids = [name for section in sections.values() for name in section]
    covered = sum(name in found.shown for name in ids)
    parts = [_PREFACE, f"{covered} of {len(ids)} are shown by tests.\n"]
    for title, sentences in sections.items():
        parts += [f"## {title}\n", "| Id | Requirement | Shown by |\n|---|---|---|"]
        parts += [
            f"| {name} | {sentence} | {_shown(found.shown.get(name, []))} |"
            for name, sentence in sentences.items()
        ]
        parts.append("")
    return "\n".join(parts)


def _shown(tests: Iterable[tuple[Path, str]]) -> str:
    """Links to the files, with the tests' names where there are few in a file."""
    by_file: dict[Path, list[str]] = defaultdict(list)
    for path, target in tests:
        by_file[path].append(target)
    return "<br>".join(_link(path, by_file[path]) for path in sorted(by_file)) or "open"


def _link(path: Path, targets: list[str]) -> str:
    member = "/".join(part for part in path.parts[:-1] if part not in ("tests", "services", "libs"))
    link = f"[{member}: {path.name}](../../{path.as_posix()})"
    if "" in targets:
        return link
    if len(targets) > _NAMED_SINGLY:
        return f"{link} ({len(targets)})"
    return f"{link} " + ", ".join(f"`{target}`" for target in targets)


def read(paths: Iterable[Path]) -> dict[Path, str]:
    """Text by path; what is not text is left out, as are the page and its data."""
    files = {}
    for path in paths:
        if path not in (PAGE, DATA):
            try:
                files[path] = (ROOT / path).read_text("utf-8")
            except UnicodeDecodeError:
                continue
    return files


def main(arguments: Sequence[str]) -> int:
    """Check, or write the page anew."""
    sections = requirements()
    found = survey([i for section in sections.values() for i in section], read(tracked()))
    text = page(sections, found)
    if "--write" in arguments:
        (ROOT / PAGE).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / PAGE).write_text(text, "utf-8")
    elif not (ROOT / PAGE).is_file() or (ROOT / PAGE).read_text("utf-8") != text:
        found.wrong.append(f"{PAGE} is out of date; write it anew with --write")
    for line in found.wrong:
        sys.stderr.write(f"{line}\n")
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
