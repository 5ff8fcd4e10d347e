"""``AgentError.type`` has values of one list: no source writes one as a literal of its own."""

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bos_errors import AgentErrorType, BosError

ROOT = Path(__file__).resolve().parents[2]
LIST = ROOT / "libs/errors/src/bos_errors/agent_types.py"
TAKE_A_TYPE = {"AgentFailure", "AgentError", "agent_error", "failed", "failed_result"}
RAISED_BY_STEPS = ("bos_errors", "bos_llm", "bos_http", "bos_artefacts")
"""Libraries whose exceptions reach a step's result by their class names."""


def sources() -> Iterator[Path]:
    for pattern in ("libs/*/src/bos_*/**/*.py", "services/**/src/bos_*/**/*.py"):
        yield from (p for p in ROOT.glob(pattern) if p != LIST and "bos_testkit" not in p.parts)


def complaints(source: str, name: str) -> list[str]:
    """Literals of a source that stand for a type of a failed step."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            function = node.func
            called = function.attr if isinstance(function, ast.Attribute) else ""
            called = function.id if isinstance(function, ast.Name) else called
            if called in TAKE_A_TYPE:
                given = [*node.args[:1], *(k.value for k in node.keywords if k.arg == "type")]
                found += [each for each in given if isinstance(each, ast.Constant) and each.value]
    return [f"{name}:{each.lineno} writes the type {each.value!r}" for each in found]


def test_types_are_taken_from_the_list() -> None:
    said = [
        line
        for path in sources()
        for line in complaints(path.read_text("utf-8"), str(path.relative_to(ROOT)))
    ]
    assert not said


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ('AgentFailure("QueryError", "No such table.")', ["a.py:1 writes the type 'QueryError'"]),
        ('AgentError(message="x", type="Made")', ["a.py:1 writes the type 'Made'"]),
        ('results.failed("Made", "x")', ["a.py:1 writes the type 'Made'"]),
        ('AgentFailure(AgentErrorType.QUERY_ERROR, "No such table.")', []),
        ('AgentError(message="x", type=error.type)', []),
        ('other("QueryError")', []),
    ],
)
def test_literal_type_is_named(source: str, said: list[str]) -> None:
    assert complaints(source, "a.py") == said


def subclasses(cls: type[BosError]) -> Iterator[type[BosError]]:
    for child in cls.__subclasses__():
        yield child
        yield from subclasses(child)


def test_every_exception_that_a_step_may_end_with_is_on_the_list() -> None:
    for package in RAISED_BY_STEPS:
        path = importlib.import_module(package).__path__
        for module in pkgutil.walk_packages(path, f"{package}."):
            importlib.import_module(module.name)
    known = {
        each.__name__: each
        for each in subclasses(BosError)
        if each.__module__.split(".")[0] in RAISED_BY_STEPS and not each.__name__.startswith("_")
    }
    assert {"ModelUnavailable", "HttpRefused", "ArtefactMissing", "NotFound"} <= known.keys()
    assert not known.keys() - set(AgentErrorType)


def test_types_are_written_in_capwords_but_for_the_three_of_approvals() -> None:
    others = {each.value for each in AgentErrorType if not each.value.isalnum()}
    assert others == {"denied_by_user", "hitl_timeout", "hitl_skipped_non_streaming"}
    assert all(each.value[0].isupper() for each in AgentErrorType if each.value not in others)
    assert all(each.source and each.meaning.endswith(".") for each in AgentErrorType)
