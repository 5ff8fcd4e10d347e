"""Writes the page of all errors from the code that raises them, so that it cannot drift.

::

    .venv/bin/python libs/errors/errors_reference.py docs/reference/errors.md

Reasons of failed calls are read from the sources (nothing is imported): Python calls of an error
class with a ``reason``, subclasses with a ``default_reason``, and the REST gateway's failures.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from bos_errors import AgentErrorType, BosError

ROOT = Path(__file__).parents[2]
_HEAD = """\
# Errors

Written by `libs/errors/errors_reference.py` from the code; do not edit it.

## Failed calls

A call that fails ends with a gRPC status whose details hold `google.rpc.ErrorInfo` (`domain` is
`bos`), and over REST with the same as JSON:

```json
{"error": {"code": 404, "status": "NOT_FOUND", "message": "…", "details": []}}
```

The **reason** is the stable identity; messages are for people, and … stands for what they name.
Unusable fields are in `google.rpc.BadRequest`, and when to try again in `google.rpc.RetryInfo`.

| Reason | gRPC | HTTP | Try again | Said by | Message |
|---|---|---|---|---|---|
"""
_TYPES = """
## Failed steps and runs

`AgentError.type` of a result or answer. `AgentError.retryable` says whether the same step may
succeed another time; the gateway repeats it then. Agents that are not part of Bos may report types
of their own; an exception that Bos does not know is reported by its class name.

| Type | Given by | What happened |
|---|---|---|
"""
_HTTP = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "ABORTED": 409,
    "RESOURCE_EXHAUSTED": 429,
    "CANCELLED": 499,
    "INTERNAL": 500,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
_RETRY = {
    "UNAVAILABLE": "yes",
    "RESOURCE_EXHAUSTED": "later",
    "ABORTED": "read first",
    "DEADLINE_EXCEEDED": "if harmless",
}
_HTTP_NAMES = {
    "BadRequest": 400,
    "Unauthorized": 401,
    "Forbidden": 403,
    "NotFound": 404,
    "MethodNotAllowed": 405,
    "RequestTimeout": 408,
    "RequestEntityTooLarge": 413,
    "UnsupportedMediaType": 415,
    "TooManyRequests": 429,
    "RequestHeaderFieldsTooLarge": 431,
    "InternalServerError": 500,
    "ServiceUnavailable": 503,
}
_GO_TEXT = r'\s*"([A-Z][A-Z0-9_]+)",\s*"((?:[^"\\]|\\.)*"\s*\+?)'
_GO_CALL = re.compile(r"(?:http\.Status(\w+)|0),\s*codes\.(\w+),(?:\s*//[^\n]*)?" + _GO_TEXT)
_GO_KNOWN = re.compile(r"\{codes\.(\w+)," + _GO_TEXT)
_GO_HELPER = re.compile(
    r"func (\w+)\([^)]*reason, text string[^)]*\)[^{]*\{\s*(?:return |apierror\.Write\(w, )"
    r"apierror\.New\(http\.Status(\w+),\s*codes\.(\w+), reason, text"
)


@dataclass
class Reason:
    """One reason under one gRPC code."""

    code: str
    http: set[int] = field(default_factory=set)
    places: set[str] = field(default_factory=set)
    messages: dict[str, None] = field(default_factory=dict)


@dataclass(frozen=True)
class ErrorClass:
    """An exception class of the tree, as the sources define it."""

    name: str
    bases: tuple[str, ...]
    default_reason: str
    meaning: str
    place: str


Reasons = dict[tuple[str, str], Reason]


def render() -> str:
    """The page."""
    rows = [_row(reason, found) for (reason, _), found in sorted(collected().items())]
    types = [f"| `{each}` | {each.source} | {each.meaning} |" for each in AgentErrorType]
    return _HEAD + "\n".join(rows) + "\n" + _TYPES + "\n".join(types) + "\n"


def _row(reason: str, found: Reason) -> str:
    cells = (
        f"`{reason}`",
        found.code,
        ", ".join(str(each) for each in sorted(found.http)) or str(_HTTP[found.code]),
        _RETRY.get(found.code, "no"),
        ", ".join(sorted(found.places)),
        "<br>".join(found.messages),
    )
    return f"| {' | '.join(cells)} |"


@cache
def collected() -> Reasons:
    """Every reason in the sources, with its code; all sources are read, once."""
    found: Reasons = {}
    trees = dict(_python())
    classes = {
        each.name: each for path, tree in trees.items() for each in _classes(tree, _place(path))
    }
    for each in classes.values():
        if each.default_reason and (code := _code(each.name, classes)):
            _add(found, each.default_reason, code, each.place, each.meaning)
    for path, tree in trees.items():
        for name, reason, texts in _raised(tree):
            if code := _code(name, classes):
                _add(found, reason, code, _place(path), *texts)
    for code, reason, text, http in _go():
        _add(found, reason, code, "REST", text, http=http)
    return found


def _add(
    found: Reasons, reason: str, code: str, place: str, *texts: str, http: int | None = None
) -> None:
    entry = found.setdefault((reason, code), Reason(code))
    entry.places.add(place)
    if http is not None:
        entry.http.add(http)
    entry.messages.update(dict.fromkeys(_cell(text) for text in texts if text))


def _python() -> Iterator[tuple[Path, ast.Module]]:
    for pattern in ("libs/*/src/bos_*/**/*.py", "services/**/src/bos_*/**/*.py"):
        for path in sorted(ROOT.glob(pattern)):
            if "bos_testkit" not in path.parts:
                yield path, ast.parse(path.read_text(encoding="utf-8"))


def _place(path: Path) -> str:
    name = next(part for part in path.parts if part.startswith("bos_")).removeprefix("bos_")
    return "all" if name in ("errors", "chassis", "postgres", "llm", "artefacts") else name


def _classes(tree: ast.Module, place: str) -> Iterator[ErrorClass]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        values = {
            target.id: item.value.value
            for item in node.body
            if isinstance(item, ast.Assign | ast.AnnAssign) and isinstance(item.value, ast.Constant)
            for target in (item.targets if isinstance(item, ast.Assign) else [item.target])
            if isinstance(target, ast.Name)
        }
        bases = tuple(base.id for base in node.bases if isinstance(base, ast.Name))
        meaning = (ast.get_docstring(node) or "").split("\n\n")[0].replace("\n", " ")
        reason = str(values.get("default_reason", ""))
        yield ErrorClass(node.name, bases, reason, meaning, place)


def _code(name: str, classes: dict[str, ErrorClass]) -> str:
    """The gRPC code of a class of the tree; empty if it is none, or has none of its own."""
    known = {
        each.__name__: each.code.name
        for each in _tree(BosError)
        if each.__module__ == BosError.__module__  # what else is loaded must not count
    }
    seen, todo = set[str](), [name]
    while todo:
        each = todo.pop()
        if code := known.get(each, ""):
            return code
        if each in classes and each not in seen:
            seen.add(each)
            todo += classes[each].bases
    return ""


def _tree(cls: type[BosError]) -> Iterator[type[BosError]]:
    for child in cls.__subclasses__():
        yield child
        yield from _tree(child)


def _raised(tree: ast.Module) -> Iterator[tuple[str, str, list[str]]]:
    """Class, reason and messages of each call that names both."""
    constants = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            continue
        for keyword in node.keywords:
            if keyword.arg != "reason":
                continue
            value = keyword.value
            reason = (
                value.value
                if isinstance(value, ast.Constant)
                else constants.get(value.id)
                if isinstance(value, ast.Name)
                else None
            )
            if isinstance(reason, str):
                yield node.func.id, reason, [] if not node.args else _texts(node.args[0])


def _texts(node: ast.expr) -> list[str]:
    """The texts that an expression may give, with … for what is filled in."""
    if isinstance(node, ast.IfExp):
        return _texts(node.body) + _texts(node.orelse)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, ast.JoinedStr):
        return ["".join(str(v.value) if isinstance(v, ast.Constant) else "…" for v in node.values)]
    return []


def _go() -> Iterator[tuple[str, str, str, int | None]]:
    """Code, reason, message and HTTP status of failures of the REST gateway."""
    sources = [
        path.read_text(encoding="utf-8")
        for path in sorted(ROOT.glob("services/rest/internal/**/*.go"))
        if not path.name.endswith("_test.go")
    ]
    for text in sources:
        for status, code, reason, message in _GO_CALL.findall(text):
            yield _code_name(code), reason, _unquoted(message), _HTTP_NAMES.get(status)
        for code, reason, message in _GO_KNOWN.findall(text):
            yield _code_name(code), reason, _unquoted(message), None
        for helper, status, code in _GO_HELPER.findall(text):
            calls = re.compile(rf"\b{helper}\((?:[\w.]+, )*" + _GO_TEXT)
            for reason, message in (each for other in sources for each in calls.findall(other)):
                yield _code_name(code), reason, _unquoted(message), _HTTP_NAMES[status]


def _code_name(go: str) -> str:
    name = re.sub(r"(?<!^)([A-Z])", r"_\1", go).upper()
    return "CANCELLED" if name == "CANCELED" else name


def _unquoted(text: str) -> str:
    """A literal of Go without its closing quote; … where something is added to it."""
    literal, _, more = text.rpartition('"')
    return re.sub(r"%[a-z]", "…", literal.replace('\\"', '"')) + ("…" if "+" in more else "")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def main(arguments: list[str]) -> None:
    """Write the page to a path.

    Raises:
        SystemExit: there is not exactly one argument.
    """
    if len(arguments) != 1:
        raise SystemExit("usage: python libs/errors/errors_reference.py FILE")
    Path(arguments[0]).write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
