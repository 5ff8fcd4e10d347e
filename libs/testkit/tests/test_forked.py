"""Programs that are forked from a process with the imports done behave like those started anew."""

import json
import signal
from pathlib import Path

import pytest

from bos_testkit.forked import forked_process
from bos_testkit.waiting import eventually

pytestmark = pytest.mark.process

PROGRAM = """
import json, os, sys
if __name__ == "__main__":
    print(json.dumps([sys.argv[1:], dict(os.environ)]), flush=True)
    print("an error", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    sys.exit(int(line))
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return str(path)


async def test_it_has_its_own_arguments_environment_and_streams(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOS_OF_THE_TEST", "not passed on")
    log = tmp_path / "log"
    with log.open("wb") as errors:
        forking = forked_process(program, "one", environment={"A": "b"}, errors=errors)
        async with forking as process:
            words, environment = json.loads(await process.stdout.readline())
            process.write(b"7\n")
            assert await process.wait() == 7
            assert process.returncode == 7
    assert words == ["one"]
    assert environment == {"A": "b"}
    assert log.read_text() == "an error\n"


async def test_it_is_frozen_woken_and_killed_like_any_process(program: str) -> None:
    async with forked_process(program, environment={}) as process:
        await process.stdout.readline()
        assert not process.stopped
        process.send_signal(signal.SIGSTOP)
        await eventually(lambda: process.stopped)
        process.send_signal(signal.SIGCONT)
        process.kill()
        assert await process.wait() == -signal.SIGKILL


async def test_it_ends_with_the_block(program: str) -> None:
    async with forked_process(program, environment={}) as process:
        await process.stdout.readline()
    assert process.returncode == -signal.SIGKILL
