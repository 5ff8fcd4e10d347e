"""REST gateway as a child process: start, log, exit and death of the real program."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bos_chassis.telemetry import Telemetry
from bos_errors import ConfigurationError
from bos_standalone.data_folder import own_folder
from bos_standalone.group import ServiceGroup
from bos_standalone.rest import Rest, find_binary, serve_rest
from bos_testkit.waiting import eventually

pytestmark = pytest.mark.rest

KEY = "a-key-of-sixteen-characters"


def binary() -> Path:
    found = find_binary(None)
    assert found is not None, "build it first: make rest"
    return found


@asynccontextmanager
async def running(*ports: int, telemetry: Telemetry | None = None) -> AsyncIterator[Rest]:
    async with serve_rest(
        binary(),
        gateway_target="127.0.0.1:1",
        api_key=KEY,
        ports=ports or (0,),
        grace_s=1.0,
        log=(telemetry or Telemetry.for_tests("rest")).logger("bos.rest"),
    ) as rest:
        yield rest


async def get(rest: Rest, path: str) -> bytes:
    host, _, port = rest.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(
            f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
        )
        return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


def refuses(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) != 0


async def test_rest_answers_until_stopped_and_its_log_is_forwarded() -> None:
    telemetry = Telemetry.for_tests("rest")
    async with running(telemetry=telemetry) as rest:
        assert b"200 OK" in await get(rest, "/healthz")
        not_ready = await get(rest, "/readyz")
        refused = await get(rest, "/v1/runs")
    assert b"503 Service Unavailable" in not_ready
    assert b"401 Unauthorized" in refused
    assert refuses(rest.address)
    said = {entry["event"]: entry["log_level"] for entry in telemetry.logs}
    assert said["draining"] == said["stopped"] == "info"
    assert said["request"] == "warning", "the 503"


async def test_next_port_is_tried_if_one_is_in_use() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        async with running(taken, 0) as rest:
            assert not rest.address.endswith(f":{taken}")
            assert b"200 OK" in await get(rest, "/healthz")
        with pytest.raises(ConfigurationError, match="BOS_REST_PORT"):
            async with running(taken):
                pass


async def test_killed_rest_process_is_reported_like_any_service(tmp_path: Path) -> None:
    telemetry = Telemetry.for_tests("standalone")
    pid_file = tmp_path / "pid"
    program = tmp_path / "bos-rest"
    program.write_text(f'#!/bin/sh\necho $$ > {pid_file}\nexec {binary()} "$@"\n')
    program.chmod(0o700)
    async with ServiceGroup(telemetry.logger("bos.standalone")) as group:
        await group.start(
            rest=lambda: serve_rest(
                program,
                gateway_target="127.0.0.1:1",
                api_key=KEY,
                ports=(0,),
                grace_s=1.0,
                log=telemetry.logger("bos.rest"),
            )
        )
        os.kill(int(pid_file.read_text()), signal.SIGKILL)
        assert await group.unexpected_end() == "rest"


async def test_rest_exits_when_its_parent_is_killed() -> None:
    code = f"""
import asyncio
from pathlib import Path
from bos_chassis.telemetry import Telemetry
from bos_standalone.rest import serve_rest

async def main():
    log = Telemetry.for_tests("rest").logger("bos.rest")
    async with serve_rest(Path({str(binary())!r}), gateway_target="127.0.0.1:1",
                          api_key={KEY!r}, ports=(0,), grace_s=1.0, log=log) as rest:
        print(rest.address, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""
    owner = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE
    )
    assert owner.stdout is not None
    address = (await owner.stdout.readline()).decode().strip()
    assert not refuses(address)
    owner.kill()
    await owner.communicate()
    await eventually(lambda: refuses(address))


async def test_settings_refused_by_rest_are_a_configuration_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BOS_REST_HEARTBEAT_S", "soon")
    with pytest.raises(ConfigurationError, match="BOS_REST_HEARTBEAT_S"):
        async with running():
            pass


def test_configured_rest_program_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="BOS_STANDALONE_REST_BINARY"):
        find_binary(tmp_path / "nothing")
    assert find_binary(Path(sys.executable)) == Path(sys.executable)


def test_rest_port_is_kept_over_restarts(tmp_path: Path) -> None:
    with own_folder(tmp_path) as folder:
        assert folder.last_rest_port == 0
        folder.announce("127.0.0.1:1", folder.api_key, {}, rest_url="http://127.0.0.1:4712")
        assert json.loads(folder.connection_file.read_text())["rest_url"].endswith(":4712")
    with own_folder(tmp_path) as folder:
        assert folder.last_rest_port == 4712
