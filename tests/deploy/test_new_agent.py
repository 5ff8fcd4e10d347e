"""`bos new agent` into a copy of the tree: checked, described, tested, without another edit."""

import asyncio
import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
import pytest_asyncio

sys.path.append(str(Path(__file__).parent))
from collections.abc import AsyncIterator

from compose_files import COMPOSE

from bos_testkit.agent_contract import KIT_RULES, RULES

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
AGENT = "services/agents/summary"
PAGE = ROOT / "docs/adding-an-agent.md"
# Nothing that is built, downloaded or started from; tests of members are not run.
LEFT_OUT = shutil.ignore_patterns(
    *(".*", "__pycache__", "node_modules", "build", "dist", "gen", "bench", "integration"),
    *("secrets", "env", "console", "golden", "images"),
)
CIRCLE = """
import sys
sys.path.append("tests/contracts")
from import_circles import circle, imports_of
sys.exit(" -> ".join(circle(imports_of(["bos_summary"]))) or None)
"""
pytestmark = [pytest.mark.process, pytest.mark.asyncio(loop_scope="module")]


def left_out(folder: str, names: list[str]) -> set[str]:
    """Names in a folder that are not copied; messages made from protos are those installed."""
    return LEFT_OUT(folder, names) | ({"src"} if folder.endswith("libs/protos") else set())


class Tree:
    """A copy of the repository, with packages of the new agent ahead of the installed ones."""

    def __init__(self, root: Path) -> None:
        self.root = root
        first = [root / "installed", root / "libs/plans/src", root / "services/standalone/src"]
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, first)),
            "MYPY_CACHE_DIR": str(ROOT / ".cache/mypy-new-agent"),
        }

    async def run(self, *command: str | Path) -> str:
        """Output of a command that must succeed."""
        process = await asyncio.create_subprocess_exec(
            *map(str, command),
            cwd=self.root,
            env=self._environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output = (await process.communicate())[0].decode()
        assert process.returncode == 0, f"{command}: {output}"
        return output

    async def python(self, *arguments: str) -> str:
        """The same for a script or module of Python."""
        return await self.run(sys.executable, *arguments)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tree(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Tree]:
    """The tree after the commands of the page."""
    root = tmp_path_factory.mktemp("tree")
    for name in ("libs", "services", "deploy", "helm", "docs", "tests"):
        shutil.copytree(ROOT / name, root / name, ignore=left_out)
    for name in ("pyproject.toml", "docker-compose.yml", "README.md"):
        shutil.copy(ROOT / name, root / name)
    tree = Tree(root)
    description = ("--description", "Summarises long text")
    await tree.run(BIN / "bos", "new", "agent", "summary", *description)
    await tree.python("deploy/from_descriptors.py")
    installer = (BIN / "uv", "pip", "install", "--quiet", "--offline", "--python", sys.executable)
    how = ("--no-deps", "--no-build-isolation", "--target", "installed")
    await tree.run(*installer, *how, AGENT)
    yield tree


@pytest.mark.requirement("S-13")
async def test_checks_accept_it_without_another_edit(tree: Tree) -> None:
    written = [path for path in (tree.root / AGENT).rglob("*") if path.suffix != ".pyc"]
    assert len([path for path in written if path.is_file()]) <= 6
    config = ("--config", "pyproject.toml", AGENT, "libs/plans/src", "services/standalone/src")
    await asyncio.gather(
        tree.run(BIN / "ruff", "check", "--no-cache", *config),
        tree.run(BIN / "ruff", "format", "--check", "--no-cache", *config),
        tree.run(BIN / "mypy", f"{AGENT}/src"),
        tree.python("tests/contracts/import_floors.py", str(ROOT / ".cache/import-linter")),
        tree.python("-c", CIRCLE),
        tree.python("deploy/from_descriptors.py", "--check"),
    )


@pytest.mark.requirement("S-05", "S-08", "S-14", "T-17")
async def test_its_own_tests_and_those_over_all_agents_pass(tree: Tree) -> None:
    """Its own are the agent contract; the others are run on the copy."""
    options = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "pyproject.toml")
    over_all = ("tests/contracts/test_workspace.py", "libs/plans/tests/test_known_agents.py")
    own, _ = await asyncio.gather(
        tree.python(*options, f"{AGENT}/tests"), tree.python(*options, *over_all)
    )
    assert re.search(rf"\b{len(RULES) - len(KIT_RULES)} passed\b", own), own


async def test_compose_starts_it_like_other_agents(tree: Tree) -> None:
    await tree.run(tree.root / "deploy/compose/secrets.sh")
    everything = json.loads(
        await tree.run(COMPOSE, "--profile", "core", "config", "--format", "json")
    )["services"]
    ours, text = everything["summary"], everything["text"]
    assert ours == json.loads(re.sub(r"\btext\b", "summary", json.dumps(text)))
    assert "summary=dns:///summary:8080" in everything["gateway"]["environment"][
        "BOS_GATEWAY_AGENT_TARGETS"
    ].split(",")
    given = sorted(each.name for each in (tree.root / "deploy/compose/secrets/summary").iterdir())
    assert given == ["ca.crt", "run-tokens.pub", "tls.crt", "tls.key"]
    assert "summary:9464" in (tree.root / "deploy/compose/targets/bos.yaml").read_text()


async def test_page_shows_what_the_command_writes(tree: Tree) -> None:
    code = (tree.root / AGENT / "src/bos_summary/agent.py").read_text()
    shown = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(shown) == 3
    assert [each for each in shown if each not in code] == []
