"""The earlier version comes from git alone; a clone that lacks it says so, and fails in CI."""

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

SCRIPT = Path(__file__).parent / "earlier.sh"
# As much of a Makefile as is asked of each commit.
MAKEFILE = "install:\n\tmkdir -p .venv/bin\n\tcp version .venv/bin/python\n"
SHOWS = ("sh", "-c", 'cat "$BOS_TEST_EARLIER_PYTHON"')


def git(folder: Path, *arguments: str) -> None:
    author = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com")
    subprocess.run(("git", *author, *arguments), cwd=folder, check=True, capture_output=True)


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """A repository of two commits."""
    folder = tmp_path / "origin"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    (folder / "Makefile").write_text(MAKEFILE)
    for version in ("earlier", "this"):
        (folder / "version").write_text(version)
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", "--message", version)
    return folder


def run(
    clone: Path, commit: str = "HEAD^1", *, ci: bool = False
) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], **({"CI": "true"} if ci else {})}
    command = ("sh", str(SCRIPT), commit, str(clone.parent / "earlier"), *SHOWS)
    return subprocess.run(
        command, cwd=clone, env=environment, check=False, text=True, capture_output=True
    )


def test_command_finds_the_parent_commit_built_by_its_own_makefile(origin: Path) -> None:
    (origin / "version").write_text("not committed")
    for _ in range(2):  # built, and found again
        done = run(origin)
        assert (done.returncode, done.stdout) == (0, "earlier"), done.stderr
    done = run(origin, "HEAD")
    assert (done.returncode, done.stdout) == (0, "this"), done.stderr
    assert len(list((origin.parent / "earlier").iterdir())) == 1


@pytest.mark.parametrize(("ci", "code"), [(False, 0), (True, 1)])
def test_shallow_clone_says_so_and_fails_in_ci(origin: Path, ci: bool, code: int) -> None:
    clone = origin.parent / "clone"
    git(origin.parent, "clone", "--quiet", "--depth=1", origin.as_uri(), str(clone))
    done = run(clone, ci=ci)
    assert (done.returncode, done.stdout) == (code, "")
    assert "shallow" in done.stderr
    assert "no upgrade was tested" in done.stderr


def test_unknown_commit_and_failed_build_run_no_command(origin: Path) -> None:
    done = run(origin, "0123456789abcdef0123456789abcdef01234567")
    assert done.returncode == 1
    assert "There is no commit" in done.stderr
    (origin / "Makefile").write_text("install:\n\tfalse\n")
    git(origin, "commit", "--quiet", "--all", "--message", "broken")
    done = run(origin, "HEAD")
    assert done.returncode != 0
    assert done.stdout == ""
