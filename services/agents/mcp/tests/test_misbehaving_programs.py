"""MCP servers as programs that misbehave."""

import sys
from pathlib import Path

import pytest

from bos_testkit.processes import is_dead
from bos_testkit.waiting import eventually

from .conftest import specialist
from .test_agent import ANNOUNCING

pytestmark = pytest.mark.security

LISTS = 'send(id=id, result={"tools": tools})'
READY_AND_GONE = ANNOUNCING.replace(LISTS, f"{LISTS}; sys.exit()")
PROGRAMS = {
    "a line without an end": "import sys\nwhile True: sys.stdout.write('x' * 65536)",
    "no messages": "import sys\nwhile True: print('hello', flush=True)",
    "noise of errors": "import sys\nwhile True: sys.stderr.write('x' * 65536)",
    "silence that ignores signals": "import signal, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(600)",
    "an early end": "pass",
}


@pytest.mark.parametrize("name", PROGRAMS)
async def test_misbehaving_program_ends_with_the_agent(name: str, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    note = f"import os\nopen({str(pids)!r}, 'a').write(f'{{os.getpid()}} ')\n"
    server = {
        "command": [sys.executable, "-c", note + PROGRAMS[name]],
        "connect_timeout_s": 2,
        "max_message_bytes": 64 * 1024,
    }
    async with specialist(server) as found:
        why = await found.away()
    assert why
    started = pids.read_text().split()
    assert started
    await eventually(lambda: all(is_dead(int(pid)) for pid in started), within_s=60)


async def test_missing_program_names_the_setting_to_correct() -> None:
    async with specialist({"command": ["/nowhere/server"]}) as found:
        why = await found.away()
    assert "cannot be started" in why
    assert "BOS_MCP_SERVERS" in why


async def test_program_that_ends_at_once_is_started_ever_more_rarely(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    code = f"import time; open({str(starts)!r}, 'a').write(f'{{time.monotonic()}} ')"
    server = {"command": [sys.executable, "-c", code + READY_AND_GONE]}

    def times() -> list[float]:
        return [float(each) for each in starts.read_text().split()] if starts.exists() else []

    async with specialist(server, max_backoff_s=3600):
        await eventually(lambda: len(times()) >= 5, within_s=120)
    # The wait begins at 0.2 s, doubles, and up to half of it is left out by chance.
    assert times()[4] - times()[3] >= 0.2 * 2**3 / 2
