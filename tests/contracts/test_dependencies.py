"""Every member of the workspace declares the distributions that its own modules import.

In the environment of `make install` an undeclared import works, as another member brings the
package along; it fails once that member does without. `make test ONLY=tests/deploy/install`
cannot see it either.
"""

import ast
import sys
import tomllib
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PATTERNS = ("libs/*", "services/*", "services/agents/*")
OWN = {"bos": "bos-protos", "buf": "bos-protos"}
"""Packages of ours whose distribution has another name."""
PARTS = {"pydantic-monty-client": "pydantic-monty"}
"""Distributions that are a part of another one, which is the one to declare."""
TOML = dict[str, Any]


def members() -> dict[str, TOML]:
    """The pyproject.toml of each member, by its folder."""
    files = sorted(file for each in PATTERNS for file in ROOT.glob(f"{each}/pyproject.toml"))
    return {
        file.parent.relative_to(ROOT).as_posix(): tomllib.loads(file.read_text("utf-8"))
        for file in files
    }


def declared(member: TOML) -> set[str]:
    """Names of the distributions that a member depends on, with all of its extras, and its own."""
    project = member["project"]
    extras = project.get("optional-dependencies", {}).values()
    lines = [*project.get("dependencies", ()), *(line for extra in extras for line in extra)]
    return {canonicalize_name(Requirement(line).name) for line in (project["name"], *lines)}


@cache
def imported(source: str) -> tuple[tuple[str, ...], ...]:
    """Modules that a source file imports, wherever it does: `import`, and one per imported name.

    An imported name may be a module or not: both readings are given, the longer one first.
    """
    found: list[tuple[str, ...]] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += ((alias.name,) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found += ((f"{node.module}.{alias.name}", node.module) for alias in node.names)
    return tuple(found)


@cache
def files_of(distribution: str) -> frozenset[str]:
    """Modules and packages that an installed distribution holds, as dotted names."""
    found = set()
    for file in metadata.files(distribution) or ():
        if file.suffix in {".py", ".pyi", ".so", ".pyd"}:
            parts = [*file.parts[:-1], file.name.partition(".")[0]]
            found |= {".".join(parts[:end]) for end in range(1, len(parts) + 1)}
    return frozenset(found)


@cache
def candidates() -> dict[str, list[str]]:
    return dict(metadata.packages_distributions())


@cache
def owners(module: str) -> frozenset[str]:
    """Distributions that hold a module; several if it is no more than their shared namespace."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names:
        return frozenset()
    if top in OWN or top.startswith("bos_"):
        return frozenset({OWN.get(top, top.replace("_", "-"))})
    found = candidates().get(top, [])
    if len(set(found)) > 1:
        found = [name for name in found if module in files_of(name)]
    names = {canonicalize_name(name) for name in found}
    return frozenset(PARTS.get(name, name) for name in names)


def lacking(source: str, names: set[str]) -> set[str]:
    """Distributions that a source file imports from and that are not among ``names``."""
    missing = set()
    for readings in imported(source):
        if readings[-1].partition(".")[0] in sys.stdlib_module_names:
            continue
        found = next((found for each in readings if (found := owners(each))), None)
        if found is None:
            missing.add(f"{readings[-1]} (not installed)")
        elif not found & names:
            missing.add(" or ".join(sorted(found)))
    return missing


def complaints(found: dict[str, TOML]) -> list[str]:
    """What members import and do not declare, with the first file that does."""
    said: dict[str, str] = {}
    for folder, member in found.items():
        names = declared(member)
        for path in sorted((ROOT / folder / "src").rglob("*.py")):
            for name in lacking(path.read_text("utf-8"), names):
                said.setdefault(f"{folder} lacks {name}", str(path.relative_to(ROOT / folder)))
    return sorted(f"{line}: {path}" for line, path in said.items())


def test_every_member_declares_what_it_imports() -> None:
    assert complaints(members()) == []


def test_forgotten_dependencies_are_named() -> None:
    found = members()
    found["services/memory"]["project"]["dependencies"].remove("asyncpg>=0.30")
    found["libs/agentkit"]["project"]["dependencies"].remove("bos-protos")
    found["services/mcp_db"]["project"]["optional-dependencies"]["mssql"].clear()
    assert [line.partition(":")[0] for line in complaints(found)] == [
        "libs/agentkit lacks bos-protos",
        "services/mcp_db lacks python-tds",
        "services/memory lacks asyncpg",
    ]


@pytest.mark.parametrize(
    ("source", "missing"),
    [
        ("import json, collections.abc", set()),
        ("import grpc", set()),
        ("def late():\n    import yaml", {"pyyaml"}),
        ("from google.protobuf import struct_pb2", {"protobuf"}),
        ("from opentelemetry.sdk.trace import TracerProvider", {"opentelemetry-sdk"}),
        ("import bos_llm.prompts", {"bos-llm"}),
        ("import nowhere.to_be_found", {"nowhere.to_be_found (not installed)"}),
    ],
)
def test_import_is_traced_to_its_distribution(source: str, missing: set[str]) -> None:
    assert lacking(source, {"grpcio"}) == missing
