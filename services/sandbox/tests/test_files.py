"""Files and figures that a program leaves come back, within bounds."""

from datetime import date

import pytest
from sandbox_client import Sandbox

from bos.sandbox.v1 import Limits, ProgramFile, ProgramStatus, RunProgramResponse, Tier
from bos_chassis.values import from_value
from bos_sandbox.files import fit_files, media_type, safe_name

pytestmark = pytest.mark.requirement("F-07")

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
async def test_files_come_from_the_folder_unless_the_program_was_stopped(
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
