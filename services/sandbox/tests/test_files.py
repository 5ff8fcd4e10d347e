"""Files and figures that a program leaves come back within bounds, and nothing else does."""

import os
import socket
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
from sandbox_client import Sandbox
from test_hostile_isolated import FORGED, ends

from bos.sandbox.v1 import Limits, ProgramFile, ProgramStatus, RunProgramResponse, Tier
from bos_chassis.values import from_value
from bos_sandbox.files import fit_files, media_type, safe_name
from bos_sandbox.process_tier.inside import files

pytestmark = [pytest.mark.requirement("F-07"), pytest.mark.security]

TODAY = {"today": date(2026, 6, 15)}
PNG = b"\x89PNG\r\n"
MIB = 1024 * 1024


async def left(isolated: Sandbox, code: str) -> RunProgramResponse:
    return await isolated.run(code, TODAY, return_files=True)


def contents(response: RunProgramResponse) -> dict[str, bytes]:
    return {file.name: file.content for file in response.files}


@pytest.mark.asyncio(loop_scope="module")
async def test_files_come_back_by_name_with_their_media_type(isolated: Sandbox) -> None:
    response = await left(
        isolated,
        "open('b.csv', 'w').write('a,b\\n1,2\\n')\nopen('a.bin', 'wb').write(bytes(range(256)))\n"
        "open('empty', 'w').close()\n7",
    )
    assert [(file.name, file.media_type) for file in response.files] == [
        ("a.bin", "application/octet-stream"),
        ("b.csv", "text/csv"),
        ("empty", "application/octet-stream"),
    ]
    assert contents(response)["a.bin"] == bytes(range(256))
    assert contents(response)["b.csv"] == b"a,b\n1,2\n"
    assert from_value(response.result) == 7
    assert list(response.file_problems) == []


@pytest.mark.asyncio(loop_scope="module")
async def test_open_figures_become_images_unless_saved(isolated: Sandbox) -> None:
    code = (
        "import matplotlib.pyplot as plt\nimport pandas as pd\n"
        "fig, ax = plt.subplots()\nax.plot([1, 2])\nfig.savefig('mine.png')\n"
        "pd.DataFrame({'m': ['a', 'b'], 'v': [1, 2]}).plot.bar(x='m', y='v')\n"
        "closed = plt.figure()\nplt.close(closed)\nplt.show()"
    )
    response = await left(isolated, code)
    assert response.status == ProgramStatus.PROGRAM_STATUS_SUCCEEDED, response
    assert list(contents(response)) == ["figure-2.png", "mine.png"]
    assert all(content.startswith(PNG) for content in contents(response).values())
    assert contents(await left(isolated, code)) == contents(response), "the same bytes each time"


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("draw", "name", "beginning"),
    [
        ("axes.hist([1, 2, 2])", "a.svg", b"<?xml"),
        ("axes.scatter([1], [2], label='ü')\naxes.legend()", "a.pdf", b"%PDF"),
        ("axes.set_title('$x^2$')", "a.webp", b"RIFF"),
    ],
)
async def test_what_matplotlib_reaches_for_later_is_there(
    isolated: Sandbox, draw: str, name: str, beginning: bytes
) -> None:
    code = f"import matplotlib.pyplot as plt\nfigure, axes = plt.subplots()\n{draw}\n"
    response = await left(isolated, f"{code}figure.savefig('{name}')")
    assert response.status == ProgramStatus.PROGRAM_STATUS_SUCCEEDED, response
    assert contents(response)[name].startswith(beginning)


@pytest.mark.asyncio(loop_scope="module")
async def test_plot_as_last_value_yields_the_variable_result(isolated: Sandbox) -> None:
    code = "import matplotlib.pyplot as plt\nresult = {'total': 3}\nplt.plot([1, 2])"
    assert from_value((await left(isolated, code)).result) == {"total": 3}
    refused = await isolated.run(code, TODAY)
    assert refused.error_type == "ResultError"


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("code", "expected", "problems"),
    [
        ("import sys\nsys.exit(3)", {"a.txt": b"x"}, 0),  # a failure
        ("import os\nos.chdir('/python')", {"a.txt": b"x"}, 0),
        ("import os\nos.mkdir('d')\nopen('d/a', 'w')\nopen('.b', 'w')", {"a.txt": b"x"}, 1),
        ("while True: pass", {}, 0),
    ],
)
async def test_files_come_back_unless_the_program_was_stopped(
    isolated: Sandbox, code: str, expected: dict[str, bytes], problems: int
) -> None:
    limits = Limits()
    limits.timeout.FromSeconds(1 if "while" in code else 60)
    code = f"open('a.txt', 'w').write('x')\n{code}"
    response = await isolated.run(code, limits=limits, return_files=True)
    assert (contents(response), len(response.file_problems)) == (expected, problems)
    assert contents(await isolated.run(code, limits=limits)) == {}, "not requested"


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("count", "problems"), [(16, 0), (17, 1)])
async def test_sixteen_files_come_back(isolated: Sandbox, count: int, problems: int) -> None:
    code = f"for n in range({count}): open(f'{{n:02}}.txt', 'w').write(str(n))"
    response = await left(isolated, code)
    assert list(contents(response)) == [f"{n:02}.txt" for n in range(16)]
    assert len(response.file_problems) == problems


@pytest.mark.asyncio(loop_scope="module")
async def test_the_interpreter_has_no_files(isolated: Sandbox) -> None:
    response = await isolated.run("1 + 1", tier=Tier.TIER_INTERPRETER, return_files=True)
    assert from_value(response.result) == 2
    assert not response.files


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("Umsätze 2025.csv", "Umsätze 2025.csv"),
        ("../../etc/passwd", "_.._etc_passwd"),
        ("a\\b.txt", "a_b.txt"),
        ("a\nb.txt", "a_b.txt"),
        ("a\u202egnp.exe", "a_gnp.exe"),
        ("\udc80.txt", "_.txt"),
        ("...", "file"),
        ("x" * 300 + ".csv", "x" * 96 + ".csv"),
        ("CON:1", "CON_1"),
        ("e\u0301.txt", "\u00e9.txt"),
    ],
)
def test_names_are_made_safe(name: str, safe: str) -> None:
    assert safe_name(name) == safe
    assert len(safe.encode()) <= 255


@pytest.mark.parametrize(
    ("name", "kind"),
    [("a.PNG", "image/png"), ("a.svg", "image/svg+xml"), ("a", "application/octet-stream")],
)
def test_media_types_follow_the_ending(name: str, kind: str) -> None:
    assert media_type(name) == kind


def test_large_response_drops_variables_then_files() -> None:
    response = RunProgramResponse(
        files=[ProgramFile(name=f"{n}", content=bytes(MIB)) for n in range(3)]
    )
    response.locals["x"].bytes_value = bytes(MIB)
    fit_files(response, 3 * MIB + 10_000)
    assert (len(response.files), len(response.locals)) == (3, 0)
    fit_files(response, 2 * MIB + 10_000)
    assert [file.name for file in response.files] == ["0", "1"]
    assert len(response.file_problems) == 1


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


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", TRICKS)
async def test_only_regular_files_come_back_under_safe_names(isolated: Sandbox, name: str) -> None:
    code, expected = TRICKS[name]
    response = await left(isolated, f"import os\n{code}\nNone")
    assert response.status == ProgramStatus.PROGRAM_STATUS_SUCCEEDED, response
    assert contents(response) == expected


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", UNDERMINED)
async def test_patched_os_functions_do_not_leak_files(
    isolated: Sandbox, inmates: Callable[[], set[int]], name: str
) -> None:
    response = await left(isolated, f"open('a', 'w').write('x')\n{UNDERMINED[name]}")
    assert len(response.files) <= 16
    assert sum(len(file.content) for file in response.files) <= 6 * MIB
    await ends(inmates)


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
    await ends(inmates)


@pytest.mark.asyncio(loop_scope="module")
async def test_forged_names_are_made_safe_as_well(isolated: Sandbox) -> None:
    claim = '{"status": "succeeded", "files": [["../../evil", 1], ["..\\\\evil", 1]]}'
    code = f"{FORGED}\nimport json\nanswer(json.dumps({claim}).encode())\n"
    response = await left(isolated, f"{code}os.write(control(), b'xy')\nos._exit(0)")
    assert contents(response) == {
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
    await ends(inmates)


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
