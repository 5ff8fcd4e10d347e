import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bos_sandbox.process_tier import known_runtime
from bos_sandbox.process_tier.known_runtime import remembered_runtime
from bos_sandbox.process_tier.runtime import PythonRuntime


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[PythonRuntime]:
    """What was found out so far; finding out costs nothing here."""
    found: list[PythonRuntime] = []
    package = tmp_path / "numpy"
    package.mkdir()

    async def find() -> PythonRuntime:
        found.append(
            PythonRuntime(tmp_path, tmp_path, "lib/python3", None, (tmp_path,), (package,))
        )
        return found[-1]

    monkeypatch.setattr(known_runtime, "find_runtime", find)
    return found


async def test_runtime_is_found_again_if_a_package_or_the_user_changed(
    probes: list[PythonRuntime], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, site = tmp_path / "new" / "cache", tmp_path / "site"
    record = site / "pandas-1.dist-info/RECORD"
    record.parent.mkdir(parents=True)
    record.write_text("")
    monkeypatch.setattr("sysconfig.get_path", lambda _name: str(site))
    first = await remembered_runtime(folder)
    assert await remembered_runtime(folder) == first
    assert len(probes) == 1
    assert folder.stat().st_mode & 0o077 == 0
    record.write_text("changed")
    await remembered_runtime(folder)
    assert len(probes) == 2
    another = os.geteuid() + 1
    monkeypatch.setattr("os.geteuid", lambda: another)
    await remembered_runtime(folder)
    assert len(probes) == 3


@pytest.mark.parametrize(
    "spoil",
    [
        lambda file: file.write_text(""),
        lambda file: file.write_text("[]"),
        lambda file: file.write_text("[" * 100_000),
        lambda file: file.write_text(json.dumps({**json.loads(file.read_text()), "loader": 7})),
        lambda file: file.write_text(
            json.dumps({**json.loads(file.read_text()), "packages": ["/nowhere/numpy"]})
        ),
        lambda file: file.chmod(0o666),
    ],
    ids=["empty", "another-form", "deep", "another-type", "gone", "writable-by-others"],
)
async def test_untrusted_cache_file_is_replaced(
    spoil: Callable[[Path], Any], probes: list[PythonRuntime], tmp_path: Path
) -> None:
    folder = tmp_path / "cache"
    await remembered_runtime(folder)
    (file,) = folder.iterdir()
    spoil(file)
    await remembered_runtime(folder)
    assert len(probes) == 2
    await remembered_runtime(folder)
    assert len(probes) == 2


async def test_a_folder_that_cannot_be_used_costs_time_alone(
    probes: list[PythonRuntime], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    for _ in range(2):
        assert (await remembered_runtime(tmp_path / "file" / "cache")).packages
    assert len(probes) == 2


async def test_the_cache_of_the_user_is_where_the_system_says(
    probes: list[PythonRuntime], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "theirs"))
    await remembered_runtime(None)
    assert len(list((tmp_path / "theirs/bos/sandbox").iterdir())) == 1
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    await remembered_runtime(None)
    assert len(probes) == 2


async def test_what_is_remembered_is_what_is_found(tmp_path: Path) -> None:
    found = await remembered_runtime(tmp_path)
    known = await remembered_runtime(tmp_path)
    assert known == found
    assert {"numpy", "pandas", "matplotlib"} <= {path.name for path in known.packages}
    assert str(known.stdlib).startswith(sys.base_prefix)
