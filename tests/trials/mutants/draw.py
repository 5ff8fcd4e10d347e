"""Draw mutants of the product's code by a seed and write them down, one JSON object a line.

    python tests/trials/mutants/draw.py --seed 40 --count 60 > tests/trials/mutants/drawn.jsonl

A mutant is one changed expression inside one function: a comparison, a boolean operator, a
negation, a returned boolean or a small number. The areas take turns, so that each has its share.
"""

import argparse
import ast
import json
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
_GATEWAY = "services/gateway/src/bos_gateway"
AREAS: dict[str, tuple[str, ...]] = {
    "gateway_core": (f"{_GATEWAY}/core/*.py", f"{_GATEWAY}/core/*/*.py"),
    "guard": ("libs/sqlguard/src/**/*.py",),
    "access": (
        "libs/chassis/src/bos_chassis/auth/**/*.py",
        "services/identity/src/**/*.py",
        f"{_GATEWAY}/permits/*.py",
    ),
    "approvals": (
        f"{_GATEWAY}/core/proposals.py",
        f"{_GATEWAY}/core/unknown_outcomes.py",
        f"{_GATEWAY}/effects/step_approval.py",
        f"{_GATEWAY}/effects/step.py",
        f"{_GATEWAY}/run_log/approvals.py",
        f"{_GATEWAY}/operator/*.py",
        "libs/agentkit/src/bos_agentkit/**/*.py",
    ),
    "sandbox": ("services/sandbox/src/**/*.py",),
    "agents": ("services/agents/*/src/**/*.py",),
    "documents": ("services/documents/src/**/*.py",),
    "rest": ("services/rest/internal/**/*.go", "services/rest/*.go"),
}
"""Globs of the files of each area, below the root."""

_COMPARISONS = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip
_GO = (
    ("==", "!="), ("!=", "=="), (" < ", " <= "), (" > ", " >= "), (" && ", " || "),
    (" || ", " && "), ("return true", "return false"), ("return false", "return true"),
)  # fmt: skip


def changes_of(function: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """Expressions of ``function`` that can be changed, each with what replaces it."""
    for node in ast.walk(function):
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            operator = _COMPARISONS[type(node.ops[0])]
            left, right = ast.unparse(node.left), ast.unparse(node.comparators[0])
            yield node, f"{left} {operator} {right}"
        elif isinstance(node, ast.BoolOp):
            word = " or " if isinstance(node.op, ast.And) else " and "
            yield node, "(" + word.join(f"({ast.unparse(one)})" for one in node.values) + ")"
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield node, f"bool({ast.unparse(node.operand)})"
        elif isinstance(node, ast.Return) and isinstance(node.value, ast.Constant):
            if isinstance(node.value.value, bool):
                yield node.value, str(not node.value.value)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            sign = "-" if isinstance(node.op, ast.Add) else "+"
            if not any(map(_is_text, (node.left, node.right))):
                yield node, f"{ast.unparse(node.left)} {sign} {ast.unparse(node.right)}"


def _is_text(node: ast.expr) -> bool:
    """Whether ``node`` is a literal that is not a number."""
    if isinstance(node, ast.JoinedStr):
        return True
    return isinstance(node, ast.Constant) and not isinstance(node.value, int | float)


def of_python(path: Path) -> Iterator[dict[str, object]]:
    """Every mutant of one Python file, of expressions on one line, which are found again."""
    text = path.read_text()
    lines = text.splitlines()
    functions = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    for function in functions:
        last = function.end_lineno or 0
        within = [each for each in functions if function.lineno < each.lineno <= last]
        inner = {id(one) for each in within for one in ast.walk(each)}
        for node, replacement in changes_of(function):
            if id(node) in inner or node.lineno != node.end_lineno:
                continue
            line = lines[node.lineno - 1]
            start, end = (
                len(line.encode()[:at].decode())
                for at in (node.col_offset, node.end_col_offset or 0)
            )
            before, after = line.strip(), (line[:start] + replacement + line[end:]).strip()
            if "lambda" in before or before.startswith(
                ("assert", "log.", "@", "def ", "async def ")
            ):
                continue
            if lines.count(line) == 1:
                yield {"function": function.name, "before": before, "after": after}


def of_go(path: Path) -> Iterator[dict[str, object]]:
    """Every mutant of one Go file."""
    function = ""
    text = path.read_text()
    for line in text.splitlines():
        if line.startswith("func "):
            named = re.match(r"func (?:\([^)]*\) )?(\w+)", line)
            function = named.group(1) if named else ""
        if not function or "//" in line or '"' in line or "err != nil" in line:
            continue
        for old, new in _GO:
            if line.count(old) == 1 and text.count(line + "\n") == 1:
                yield {
                    "function": function,
                    "before": line.strip(),
                    "after": line.replace(old, new).strip(),
                }


def all_of(area: str) -> list[dict[str, object]]:
    """Every mutant of an area, in a stable order."""
    paths = {path for glob in AREAS[area] for path in ROOT.glob(glob)}
    found = []
    for path in sorted(paths):
        if "migrations" in path.parts or path.name.endswith(("_test.go", "_pb2.py")):
            continue
        for one in of_go(path) if path.suffix == ".go" else of_python(path):
            found.append({"area": area, "file": str(path.relative_to(ROOT)), **one})
    return found


def main() -> None:
    """Write ``--count`` mutants to standard output."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=40)
    parser.add_argument("--count", type=int, default=60)
    asked = parser.parse_args()
    chance = random.Random(asked.seed)
    left = {area: all_of(area) for area in AREAS}
    taken: set[tuple[object, object]] = set()
    number = 0
    while number < asked.count:
        for mutants in left.values():
            one = mutants.pop(chance.randrange(len(mutants)))
            while (one["file"], one["function"]) in taken:
                one = mutants.pop(chance.randrange(len(mutants)))
            taken.add((one["file"], one["function"]))
            number += 1
            sys.stdout.write(json.dumps({"id": number, **one}) + "\n")
            if number == asked.count:
                break


if __name__ == "__main__":
    main()
