"""Members of the workspace: import contracts made from folders, entry points, contract tests."""

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent))
from import_floors import FLOORS, completed

ROOT = Path(__file__).resolve().parents[2]
TOML = dict[str, Any]


def read(file: Path) -> TOML:
    return tomllib.loads(file.read_text("utf-8"))


def members() -> dict[Path, TOML]:
    """The pyproject.toml of each member, by its folder; found as `make install` finds them."""
    patterns = ("libs/*", "services/*", "services/agents/*")
    found = sorted(path for each in patterns for path in ROOT.glob(f"{each}/pyproject.toml"))
    return {path.parent: read(path) for path in found}


def test_workspace_of_uv_is_every_installed_member() -> None:
    workspace = read(ROOT / "pyproject.toml")["tool"]["uv"]["workspace"]
    folders = {path for glob in workspace["members"] for path in ROOT.glob(glob)}
    folders -= {path for glob in workspace["exclude"] for path in ROOT.glob(glob)}
    assert {path for path in folders if (path / "pyproject.toml").exists()} == {*members()}


def test_required_members_are_sources_of_uv() -> None:
    """`make lock` fails on a missing one; it needs the network to say so."""
    sources = read(ROOT / "pyproject.toml")["tool"]["uv"]["sources"].keys()
    ours = {member["project"]["name"] for member in members().values()}
    required = {
        name
        for member in members().values()
        for group in (
            member["project"]["dependencies"],
            *member["project"].get("optional-dependencies", {}).values(),
        )
        for each in group
        if (name := re.split(r"[^\w-]", each)[0]) in ours
    }
    assert required <= sources <= ours


def test_import_contracts_follow_from_the_folders(tmp_path: Path) -> None:
    options = read(ROOT / "pyproject.toml")["tool"]["importlinter"]
    for each in ("errors", "agentkit", "client"):
        (tmp_path / f"libs/{each}/src/bos_{each}").mkdir(parents=True)
    for each in ("gateway", "standalone", "agents/new"):
        (tmp_path / f"services/{each}/src/bos_{Path(each).name}").mkdir(parents=True)

    found = completed(options, tmp_path)

    assert {"bos_gateway", "bos_new", "bos_standalone"} <= {*found["root_packages"]}
    floors, client, agents = found["contracts"][:3]
    assert floors["layers"][:2] == ["bos_standalone", "bos_gateway | bos_new | bos_cli"]
    assert client["forbidden_modules"] == [
        "bos_agentkit",
        "bos_gateway",
        "bos_new",
        "bos_standalone",
    ]
    assert agents["source_modules"] == ["bos_gateway"]
    assert [each["name"] for each in found["contracts"]].count(FLOORS) == 1

    (tmp_path / "libs/unplaced/src/bos_unplaced").mkdir(parents=True)
    with pytest.raises(SystemExit, match="bos_unplaced stands on no floor"):
        completed(options, tmp_path)


@pytest.mark.requirement("C-34", "L-08")
def test_agents_have_an_entry_point_and_run_the_contract() -> None:
    """The contract suite wants the user's profile and the conversation in prompts, for instance."""
    agents = {f: each for f, each in members().items() if f.parent.name == "agents"}
    assert len(agents) >= 12
    problems = []
    for folder, member in agents.items():
        points = member["project"].get("entry-points", {}).get("bos.agents", {})
        if {each.partition(".")[0] for each in points.values()} != {f"bos_{folder.name}"}:
            problems.append(f"{folder.name}: needs one entry point in bos.agents for its package")
        tests = "".join(each.read_text("utf-8") for each in folder.glob("tests/test_*.py"))
        if "@every_rule\n" not in tests and "@own_rules\n" not in tests:
            problems.append(f"{folder.name}: no test runs the rules of the agent contract")
    assert problems == []
