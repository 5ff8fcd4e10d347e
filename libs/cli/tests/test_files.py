"""Files of runs: named at the end of an answer, listed, and saved where nothing is overwritten."""

import hashlib
import json
from pathlib import Path

import pytest

from bos.gateway.v1 import OrchestratorResponse
from bos_cli.commands.files import safe_name
from bos_client import BosClient
from bos_errors import NotFound, Unavailable
from bos_testkit.scripted_gateway import RUN_ID, Gateway, response, story

from .commands import bos as run_bos

PICTURE, ROWS = b"\x89PNG picture", b"a,b\n1,2\n"


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def with_files(*files: tuple[str, bytes]) -> OrchestratorResponse:
    outcome = response()
    result = outcome.agent_results.add(agent_name="code")
    for name, content in files:
        result.files.add(
            name=name, digest=digest(content), media_type="image/png", size_bytes=len(content)
        )
    return outcome


def saved(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def beside(folder: Path) -> list[str]:
    return [path.name for path in folder.parent.iterdir()]


@pytest.fixture
def drawn(gateway: Gateway) -> Gateway:
    files = (("chart.png", PICTURE), ("../rows.csv", ROWS))
    gateway.events = story(with_files(*files))
    gateway.files = {digest(content): content for _, content in files}
    return gateway


async def test_a_file_is_fetched_whole_or_refused(drawn: Gateway, bos: BosClient) -> None:
    assert await bos.download_file(RUN_ID, digest(PICTURE)) == PICTURE
    with pytest.raises(NotFound):
        await bos.download_file(RUN_ID, digest(b"another"))
    drawn.files[digest(PICTURE)] = PICTURE[:-1]
    with pytest.raises(Unavailable):
        await bos.download_file(RUN_ID, digest(PICTURE))


async def test_the_end_of_an_answer_names_the_files(drawn: Gateway) -> None:
    done = await run_bos(drawn, "ask", "Who leads?")
    assert done.code == 0
    assert "Files\n  - chart.png (12 bytes)\n  - ../rows.csv (8 bytes)\n" in done.out
    assert f"bos runs files {RUN_ID} --output ." in done.out


async def test_files_are_listed(drawn: Gateway, tmp_path: Path) -> None:
    done = await run_bos(drawn, "runs", "files", RUN_ID)
    assert done.code == 0
    assert [line.split()[0] for line in done.out.splitlines()[2:]] == ["chart.png", "../rows.csv"]
    done = await run_bos(drawn, "runs", "files", RUN_ID, "--output", str(tmp_path), "--json")
    first, _ = json.loads(done.out)["files"]
    assert (first["digest"], first["saved"]) == (digest(PICTURE), str(tmp_path / "chart.png"))


async def test_files_are_saved_within_the_folder(drawn: Gateway, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    for _ in range(2):
        done = await run_bos(drawn, "runs", "files", RUN_ID, "--output", str(folder))
        assert done.code == 0, done.err
    assert saved(folder) == {
        "chart.png": PICTURE,
        "chart-2.png": PICTURE,
        "_rows.csv": ROWS,
        "_rows-2.csv": ROWS,
    }
    assert beside(folder) == ["out"]


async def test_a_folder_that_cannot_be_written_to_is_said(drawn: Gateway, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    done = await run_bos(drawn, "runs", "files", RUN_ID, "--output", str(tmp_path / "out" / "in"))
    assert done.code == 1
    assert "cannot be written to" in done.err


async def test_a_run_without_files_says_so(gateway: Gateway) -> None:
    done = await run_bos(gateway, "runs", "files", RUN_ID)
    assert (done.code, done.out) == (0, "no files\n")
    assert "Files" not in (await run_bos(gateway, "ask", "Who leads?")).out


def test_names_stay_within_the_folder() -> None:
    expected = {
        "chart.png": "chart.png",
        "../../etc/passwd": "_.._etc_passwd",
        "..": "file",
        "a\x1b[2J.png": "a_[2J.png",
        "a\u202egnp.exe": "a_gnp.exe",
        "x" * 200 + ".csv": "x" * 116 + ".csv",
    }
    assert {name: safe_name(name) for name in expected} == expected
