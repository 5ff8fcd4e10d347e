"""Descriptors of services, and that what is made from them is neither stale nor wrong."""

import shutil
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "deploy"))
from descriptors.descriptor import Services
from from_descriptors import blocks, main, written

ROOT = Path(__file__).parents[2]
HEAD = '[project]\nname = "bos-new"\ndescription = "New"\n\n[tool.bos]\nkind = "agent"\n'


def described(root: Path, name: str, table: str) -> Services:
    folder = root / "services" / "agents" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(HEAD + table)
    return Services(root)


def texts(root: Path) -> dict[str, str]:
    return {name: (root / name).read_text() for name in blocks(Services(ROOT))}


def test_committed_files_are_up_to_date() -> None:
    assert main(["--check"]) == 0


def test_new_agent_is_everywhere_and_a_removed_one_nowhere(
    described_tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = texts(described_tree)
    described(described_tree, "new_one", 'connections = ["new.api"]\naliases = ["Newcomer"]\n')
    assert main(["--check", "--root", str(described_tree)]) == 1
    out_of_date = capsys.readouterr().err
    assert texts(described_tree) == before

    assert main(["--root", str(described_tree)]) == 0
    assert main(["--check", "--root", str(described_tree)]) == 0
    added = {name: text.replace(before[name], "") for name, text in texts(described_tree).items()}
    for name in before.keys() - {"deploy/compose/postgres/roles.sh"}:  # it has no tables
        assert name in out_of_date
        assert "new_one" in added[name] or "new-one" in added[name], name

    shutil.rmtree(described_tree / "services/agents/new_one")
    main(["--root", str(described_tree)])
    assert texts(described_tree) == before


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ('egres = ["web"]\n', r"services/agents/new/pyproject.toml, \[tool.bos\]: egres: Extra"),
        ('callers = ["everyone"]\n', "callers.0: Input should be 'users', 'gateway' or 'steps'"),
        (
            'calls = { gone = "BOS_NEW_TARGET" }\n',
            "services/agents/new: calls gone, which no folder",
        ),
    ],
)
def test_wrong_descriptor_is_named_with_its_field(tmp_path: Path, table: str, problem: str) -> None:
    with pytest.raises(SystemExit, match=problem):
        described(tmp_path, "new", table)


def test_file_without_its_block_is_refused() -> None:
    with pytest.raises(ValueError, match="1 blocks expected, 0 found"):
        written("nothing\n", ["made\n"])
