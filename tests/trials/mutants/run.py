"""Which drawn mutants a test suite kills, by the tests that reach the changed function alone.

    python tests/trials/mutants/run.py reach TREE reached.json [pytest arguments]
    python tests/trials/mutants/run.py kill TREE reached.json killed.jsonl [--ids 1,2]

TREE is a clone of its own with its environment in ``.venv``: it is changed while this runs.
``reach`` runs the suite once with a probe at the start of every drawn function; ``kill`` then makes
one mutant at a time and runs the tests that reached it until the first one fails. Go's mutants are
tried with all tests of Go.
"""

import argparse
import ast
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

_HERE = Path(__file__).parent
_LIMIT_S = 300
_NEAREST = 60
_PROBE = """
import os
_seen = set()
def hit(mutant):
    try:
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
        if test and (mutant, test) not in _seen:
            _seen.add((mutant, test))
            with open(os.path.join({folder!r}, str(mutant)), "a") as file:
                file.write(test + "\\n")
    except Exception:
        pass
"""


def drawn() -> list[dict[str, object]]:
    """The mutants as they stand in ``drawn.jsonl``."""
    return [json.loads(line) for line in (_HERE / "drawn.jsonl").read_text().splitlines()]


@contextmanager
def changed(texts: Mapping[Path, str]) -> Iterator[None]:
    """Files with other texts while the context is open."""
    before = {path: path.read_text() for path in texts}
    try:
        for path, text in texts.items():
            path.write_text(text)
        yield
    finally:
        for path, text in before.items():
            path.write_text(text)


def mutated(path: Path, mutant: Mapping[str, object]) -> str:
    """The text of ``path`` with the mutant's line in place of the product's.

    Raises:
        ValueError: the line does not stand there once: give it its new place in ``drawn.jsonl``.
    """
    lines = path.read_text().splitlines(keepends=True)
    at = [number for number, line in enumerate(lines) if line.strip() == mutant["before"]]
    if len(at) != 1:
        raise ValueError(f"mutant {mutant['id']}: its line stands {len(at)} times in {path}")
    line = lines[at[0]]
    lines[at[0]] = line.replace(str(mutant["before"]), str(mutant["after"]))
    return "".join(lines)


def probed(text: str, mutants: Sequence[Mapping[str, object]]) -> str:
    """``text`` with a probe at the start of the function of each mutant."""
    lines = text.splitlines(keepends=True)
    places = []
    for mutant in mutants:
        (line,) = (n for n, each in enumerate(lines, 1) if each.strip() == mutant["before"])
        inside = [
            node
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and node.lineno <= line <= (node.end_lineno or 0)
        ]
        body = max(inside, key=lambda node: node.lineno).body
        first = (
            body[1]
            if len(body) > 1 and ast.get_docstring(max(inside, key=lambda n: n.lineno))
            else body[0]
        )
        places.append((first.lineno, first.col_offset, mutant["id"]))
    for line, column, mutant_id in sorted(places, key=lambda place: -place[0]):
        lines.insert(line - 1, f"{' ' * column}__import__('bos_mutant_probe').hit({mutant_id})\n")
    return "".join(lines)


def reach(tree: Path, out: Path, arguments: Sequence[str]) -> None:
    """Run the suite with probes and write which tests reached each mutant's function."""
    (packages,) = (tree / ".venv/lib").glob("python3*/site-packages")
    by_file: dict[Path, list[dict[str, object]]] = {}
    for mutant in drawn():
        if not str(mutant["file"]).endswith(".go"):
            by_file.setdefault(tree / str(mutant["file"]), []).append(mutant)
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        module = packages / "bos_mutant_probe.py"
        module.write_text(_PROBE.format(folder=folder))
        try:
            with changed({path: probed(path.read_text(), of) for path, of in by_file.items()}):
                subprocess.run([".venv/bin/pytest", "-q", *arguments], cwd=tree, check=False)
        finally:
            module.unlink()
        reached = {
            file.name: sorted(set(file.read_text().splitlines())) for file in Path(folder).iterdir()
        }
    out.write_text(json.dumps(reached, indent=0, sort_keys=True))


def first_failure(tree: Path, command: Sequence[str]) -> tuple[str, float]:
    """The first test that failed and the seconds it took; ``survived`` if none did."""
    began = time.monotonic()
    try:
        done = subprocess.run(
            command, cwd=tree, capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return "time", _LIMIT_S
    took = time.monotonic() - began
    lines = (done.stdout + done.stderr).splitlines()
    failed = [line for line in lines if line.lstrip().startswith(("FAILED", "ERROR ", "--- FAIL"))]
    if done.returncode == 0:
        return "survived", took
    return (failed[0].split(" - ")[0].strip() if failed else f"exit {done.returncode}"), took


def near_first(tests: Sequence[str], file: str) -> list[str]:
    """``tests`` with those first that are likely to fail soon: pure ones, of the same member."""
    member = file.partition("/src/")[0]
    slow = ("/crash/", "/interleaving/", "/trials/", "/service/", "tests/integration", "tests/e2e")
    return sorted(tests, key=lambda test: (sum(part in test for part in slow), member not in test))


def commands(path: Path, tests: Sequence[str]) -> Iterator[list[str]]:
    """What to run for a mutant of ``path``: its nearest tests in one process, then all others."""
    if path.suffix == ".go":
        yield ["sh", "services/rest/go.sh", "test", "-failfast", "./..."]
        return
    pytest = [".venv/bin/pytest", "-x", "-q", "-p", "no:cacheprovider"]
    if tests[:_NEAREST]:
        yield [*pytest, "-p", "no:xdist", *tests[:_NEAREST]]
    if tests[_NEAREST:]:
        yield [*pytest, "-n", "3", *tests[_NEAREST:]]


def kill(tree: Path, reached: Mapping[str, list[str]], out: Path, ids: set[int]) -> None:
    """Try every mutant, or those of ``ids``, and append a line for each to ``out``."""
    for mutant in drawn():
        if ids and mutant["id"] not in ids:
            continue
        path = tree / str(mutant["file"])
        # A probe inside an isolated program cannot write: then all tests of the member are tried.
        member = str(mutant["file"]).partition("/src/")[0]
        tests = near_first(reached.get(str(mutant["id"]), [f"{member}/tests"]), str(mutant["file"]))
        by, took = "survived", 0.0
        with changed({path: mutated(path, mutant)}):
            for command in commands(path, tests):
                by, more = first_failure(tree, command)
                took += more
                if by != "survived":
                    break
        line = {"id": mutant["id"], "tests": len(tests), "by": by, "s": round(took, 1)}
        with out.open("a") as file:
            file.write(json.dumps(line) + "\n")


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["reach", "kill"])
    parser.add_argument("tree", type=Path)
    parser.add_argument("reached", type=Path)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--ids", default="")
    asked, others = parser.parse_known_args()
    if asked.what == "reach":
        reach(asked.tree.resolve(), asked.reached, ([str(asked.out)] if asked.out else []) + others)
    else:
        ids = {int(one) for one in asked.ids.split(",") if one}
        kill(asked.tree.resolve(), json.loads(asked.reached.read_text()), asked.out, ids)


if __name__ == "__main__":
    main()
