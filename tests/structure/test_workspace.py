"""Every member of the workspace is in every list of the root's pyproject.toml, and nothing else is.

A member that a list forgets would not fail: it would go unchecked (types, import floors, circles).
"""

from __future__ import annotations

import copy
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ROOT = Path(__file__).resolve().parents[2]
APART_FROM_FLOORS = {"bos_client", "bos_conversation"}
CLIENT = {*APART_FROM_FLOORS, "bos_cli"}
FLOORS = "Floors: each layer stands on the ones below it; services never import one another"
BELOW_CLIENT = {"bos_errors", "bos_plainjson"}
APART = "The client stands on the contracts, their plain JSON and the errors alone"
TOML = dict[str, Any]


def read(folder: Path) -> TOML:
    return tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))


def members() -> dict[str, TOML]:
    """The pyproject.toml of each member, by its folder; found as uv finds them."""
    workspace = read(ROOT)["tool"]["uv"]["workspace"]
    folders = {path for glob in workspace["members"] for path in ROOT.glob(glob) if path.is_dir()}
    folders -= {path for glob in workspace["exclude"] for path in ROOT.glob(glob)}
    return {
        path.relative_to(ROOT).as_posix(): read(path)
        for path in sorted(folders)
        if (path / "pyproject.toml").exists()  # what is left of a member that went has none
    }


def packages(member: TOML) -> set[str]:
    """Our packages of a member; those of libs/protos are generated, and checked where they are."""
    paths = member["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    return {name for path in paths if (name := Path(path).name).startswith("bos_")}


def contract(root: TOML, name: str) -> TOML:
    found: list[TOML] = [c for c in root["tool"]["importlinter"]["contracts"] if c["name"] == name]
    assert len(found) == 1, f"import-linter: there should be one contract {name!r}"
    return found[0]


def floors(root: TOML) -> list[str]:
    layers = contract(root, FLOORS)["layers"]
    return [name.strip("() ") for layer in layers for name in layer.split("|")]


def complaints(root: TOML, found: dict[str, TOML]) -> list[str]:
    """What the lists of the root's pyproject.toml lack, have twice or have without reason."""
    ours = {package for member in found.values() for package in packages(member)}
    tools = root["tool"]
    lists: dict[str, tuple[Iterable[str], set[str]]] = {
        "tool.mypy.mypy_path": (tools["mypy"]["mypy_path"], {f"{path}/src" for path in found}),
        "tool.uv.sources": (tools["uv"]["sources"], {m["project"]["name"] for m in found.values()}),
        "tool.importlinter.root_packages": (tools["importlinter"]["root_packages"], ours),
        f"layers of {FLOORS!r}": (floors(root), ours - APART_FROM_FLOORS),
        f"forbidden_modules of {APART!r}": (
            contract(root, APART)["forbidden_modules"],
            ours - CLIENT - BELOW_CLIENT,
        ),
    }
    said = []
    for name, (listed, wanted) in lists.items():
        have = list(listed)
        said += [f"{name} lacks {entry}" for entry in sorted(wanted - set(have))]
        said += [f"{name} names {entry}, no member" for entry in sorted(set(have) - wanted)]
        said += [
            f"{name} names {entry} twice" for entry in sorted(set(have)) if have.count(entry) > 1
        ]
    return said


def forget_path(root: TOML) -> None:
    root["tool"]["mypy"]["mypy_path"].remove("services/agents/sql/src")


def forget_source(root: TOML) -> None:
    del root["tool"]["uv"]["sources"]["bos-sql"]


def forget_root_package(root: TOML) -> None:
    root["tool"]["importlinter"]["root_packages"].remove("bos_sql")


def forget_floor(root: TOML) -> None:
    layers = contract(root, FLOORS)["layers"]
    layers[1] = layers[1].replace(" | bos_sql ", " ")


def forget_for_client(root: TOML) -> None:
    contract(root, APART)["forbidden_modules"].remove("bos_sql")


def leave_path(root: TOML) -> None:
    root["tool"]["mypy"]["mypy_path"].append("libs/gone/src")


def double_floor(root: TOML) -> None:
    contract(root, FLOORS)["layers"].append("bos_sql")


def test_lists_of_the_workspace_name_every_member_and_nothing_else() -> None:
    assert complaints(read(ROOT), members()) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (forget_path, "tool.mypy.mypy_path lacks services/agents/sql/src"),
        (forget_source, "tool.uv.sources lacks bos-sql"),
        (forget_root_package, "tool.importlinter.root_packages lacks bos_sql"),
        (forget_floor, f"layers of {FLOORS!r} lacks bos_sql"),
        (forget_for_client, f"forbidden_modules of {APART!r} lacks bos_sql"),
        (leave_path, "tool.mypy.mypy_path names libs/gone/src, no member"),
        (double_floor, f"layers of {FLOORS!r} names bos_sql twice"),
    ],
)
def test_forgotten_stale_or_doubled_entry_is_named(
    change: Callable[[TOML], None], expected: str
) -> None:
    root = copy.deepcopy(read(ROOT))
    change(root)
    assert complaints(root, members()) == [expected]


def test_new_member_is_missed_in_every_list() -> None:
    new = {
        "project": {"name": "bos-new"},
        "tool": {"hatch": {"build": {"targets": {"wheel": {"packages": ["src/bos_new"]}}}}},
    }
    said = complaints(read(ROOT), {**members(), "libs/new": new})
    assert len(said) == 5
    assert all(" lacks " in line for line in said)


def test_members_are_those_that_are_installed() -> None:
    """`make install` finds members by its own patterns."""
    patterns = ("libs/*", "services/*", "services/agents/*")
    installed = {p.parent for g in patterns for p in ROOT.glob(f"{g}/pyproject.toml")}
    assert {ROOT / folder for folder in members()} == installed


def without_entry_point(found: dict[str, TOML]) -> list[str]:
    """Agents that `bos serve all` would not find: without one entry point for their own package."""
    return [
        folder
        for folder, member in found.items()
        if folder.startswith("services/agents/")
        and {f"{package}.service:serve" for package in packages(member)}
        != set(member["project"].get("entry-points", {}).get("bos.agents", {}).values())
    ]


def test_every_agent_has_an_entry_point() -> None:
    assert without_entry_point(members()) == []


def test_agent_without_entry_point_or_with_that_of_another_is_named() -> None:
    found = members()
    del found["services/agents/sql"]["project"]["entry-points"]
    points = found["services/agents/code"]["project"]["entry-points"]["bos.agents"]
    points["code"] = "bos_sql.service:serve"
    assert without_entry_point(found) == ["services/agents/code", "services/agents/sql"]


def without_contract_tests(folder: Path) -> list[str]:
    """Agents below ``folder`` that do not run every rule of the agent contract."""
    agents = [path.parent for path in sorted(folder.glob("*/pyproject.toml"))]
    return [agent.name for agent in agents if not runs_every_rule(agent)]


def runs_every_rule(agent: Path) -> bool:
    tests = agent / "tests" / "test_contract.py"
    return tests.exists() and "@every_rule\n" in tests.read_text("utf-8")


@pytest.mark.requirement("C-34", "L-08")
def test_every_agent_runs_the_contract_suite_which_wants_profile_and_conversation_in_prompts() -> (
    None
):
    assert without_contract_tests(ROOT / "services" / "agents") == []


def test_agent_that_does_not_run_the_contract_suite_is_named(tmp_path: Path) -> None:
    for name, tests in (
        ("with", "@every_rule\nasync def test_contract() -> None: ...\n"),
        ("not", ""),
    ):
        folder = tmp_path / name / "tests"
        folder.mkdir(parents=True)
        (tmp_path / name / "pyproject.toml").touch()
        (folder / "test_contract.py").write_text(tests)
    assert without_contract_tests(tmp_path) == ["not"]
