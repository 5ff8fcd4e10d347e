"""What a program may try with the files it hands back: nothing but its own folder comes out."""

import os
import socket
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
from sandbox_client import Sandbox
from test_hostile_isolated import FORGED, stands

from bos.sandbox.v1 import ProgramStatus, RunProgramResponse
from bos_sandbox.process_tier.inside import files

pytestmark = pytest.mark.security

MIB = 1024 * 1024
BOUNDS = {"count": 3, "each": 10, "total": 20}
TRICKS = {  # what is left in the folder, and what comes back of it
    "link to the host": ("os.symlink('/etc/passwd', 'passwd.txt')", {}),
    "link to the interpreter": ("os.symlink('/python/bin/python3', 'python')", {}),
    "link to a folder": ("os.symlink('/python', 'all')", {}),
    "the folder exchanged": (
        "os.mkdir('d')\nopen('d/a', 'w').write('x')\nos.symlink('/python', 'e')\nos.chdir('e')",
        {},
    ),
    "unreadable": ("open('a', 'w').write('x')\nos.chmod('a', 0)", {}),
    "name with a line end": ("open('a\\nb.txt', 'w').write('x')", {"a_b.txt": b"x"}),
    "name with an escape": ("open('\\x1b[2Ja.txt', 'w').write('x')", {"_[2Ja.txt": b"x"}),
    "name that turns around": ("open('a\\u202egnp.exe', 'w').write('x')", {"a_gnp.exe": b"x"}),
    "names that fall together": (
        "for n in ('a\\nb', 'a\\tb', 'A_b'): open(n, 'w').write('x')",
        {"A_b": b"x", "a_b-2": b"x", "a_b-3": b"x"},
    ),
    "long name": ("open('x' * 255, 'w').write('x')", {"x" * 100: b"x"}),
}
UNDERMINED = {  # the program exchanges what its files are read with
    "no way to open": "import os\nos.open = None",
    "no way to look": "import os\nos.scandir = lambda folder: 1 / 0",
    "open says something else": (
        "import os\nreal = os.open\n"
        "os.open = lambda path, *more, **named: real('/python/bin/python3', os.O_RDONLY)"
    ),
}
FORGERIES = {  # what is claimed of files, and what is sent behind it
    "more files than allowed": '[["a", 0]] * 17',
    "larger than allowed": f'[["a", {4 * MIB + 1}]]',
    "negative": '[["a", -1]]',
    "no numbers": '[["a", "1"], ["b", None], ["c", 1.5]]',
    "no list": '{"a": 1}',
    "never sent": '[["a", 100]]',
}


async def left(isolated: Sandbox, code: str) -> RunProgramResponse:
    return await isolated.run(code, {"today": date(2026, 6, 15)}, return_files=True)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", TRICKS)
async def test_only_regular_files_come_back_under_safe_names(isolated: Sandbox, name: str) -> None:
    code, expected = TRICKS[name]
    response = await left(isolated, f"import os\n{code}\nNone")
    assert response.status == ProgramStatus.PROGRAM_STATUS_SUCCEEDED, response
    assert {file.name: file.content for file in response.files} == expected


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", UNDERMINED)
async def test_patched_os_functions_do_not_leak_files(
    isolated: Sandbox, inmates: Callable[[], set[int]], name: str
) -> None:
    response = await left(isolated, f"open('a', 'w').write('x')\n{UNDERMINED[name]}")
    assert len(response.files) <= 16
    assert sum(len(file.content) for file in response.files) <= 6 * MIB
    await stands(isolated, inmates)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", FORGERIES)
async def test_forged_claims_about_files_bring_none(
    isolated: Sandbox, inmates: Callable[[], set[int]], name: str
) -> None:
    claim = f'{{"status": "succeeded", "files": {FORGERIES[name]}, "file_problems": [1, None]}}'
    code = f"{FORGED}\nimport json\nanswer(json.dumps({claim}).encode())\nos._exit(0)"
    response = await left(isolated, code)
    assert list(response.files) == []
    assert list(response.file_problems) == []
    await stands(isolated, inmates)


@pytest.mark.asyncio(loop_scope="module")
async def test_forged_names_are_made_safe_as_well(isolated: Sandbox) -> None:
    claim = '{"status": "succeeded", "files": [["../../evil", 1], ["..\\\\evil", 1]]}'
    code = f"{FORGED}\nimport json\nanswer(json.dumps({claim}).encode())\n"
    response = await left(isolated, f"{code}os.write(control(), b'xy')\nos._exit(0)")
    assert {file.name: file.content for file in response.files} == {
        "_.._evil": b"x",
        "_evil": b"y",
    }


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("code", "limit"),
    [
        ("open('big', 'wb').write(b'x' * 10**7)", "disk"),
        ("open('big', 'wb').truncate(10**12)", "disk"),
        ("for n in range(5000): open(str(n), 'w').close()\nwhile True: pass", "files"),
    ],
)
async def test_floods_end_the_program_whether_or_not_files_come_back(
    isolated: Sandbox, inmates: Callable[[], set[int]], code: str, limit: str
) -> None:
    response = await left(isolated, code)
    assert (response.status, response.error_type) == (
        ProgramStatus.PROGRAM_STATUS_LIMIT_EXCEEDED,
        limit,
    )
    assert list(response.files) == []
    await stands(isolated, inmates)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_fifo_cannot_be_made_inside(isolated: Sandbox) -> None:
    response = await left(isolated, "open('a', 'w').write('x')\nimport os\nos.mkfifo('b')")
    assert response.status == ProgramStatus.PROGRAM_STATUS_VIOLATION
    assert list(response.files) == []


def test_what_is_no_regular_file_is_passed_by(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        found, problems = files.collect(str(tmp_path), BOUNDS)
    assert found == [("a", b"x")]
    assert problems == []


def test_file_replaced_by_a_fifo_or_link_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("/etc/passwd")
    # Between looking and opening: both were regular files when the folder was read.
    monkeypatch.setattr(files, "_names", lambda directory, problems: ["fifo", "gone", "link"])
    assert files.collect(str(tmp_path), BOUNDS) == ([], [])


@pytest.mark.parametrize(
    ("sizes", "kept"),
    [([10], 1), ([11], 0), ([10, 10], 2), ([10, 10, 1], 2), ([1, 1, 1, 1], 3)],
)
def test_bounds_hold_one_by_one_and_together(tmp_path: Path, sizes: list[int], kept: int) -> None:
    for number, size in enumerate(sizes):
        (tmp_path / str(number)).write_bytes(bytes(size))
    found, problems = files.collect(str(tmp_path), BOUNDS)
    assert len(found) == kept
    assert bool(problems) == (kept < len(sizes))
