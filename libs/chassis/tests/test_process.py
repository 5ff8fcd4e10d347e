"""Real processes and real signals."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from bos_chassis import process as chassis_process
from bos_chassis.settings import ServerSettings, Settings, TelemetrySettings
from bos_chassis.telemetry import Telemetry
from bos_errors import ConfigurationError, Unavailable

PROGRAM = """
import bos_chassis
import asyncio
from contextlib import asynccontextmanager
import grpc
from bos_chassis.process import main
from bos_chassis.server import Servicer, grpc_server
from bos_chassis.settings import ServerSettings

async def echo(request, context):
    return request

async def wait(request, context):
    print("entered", flush=True)
    await asyncio.Event().wait()

def add(_, server):
    handlers = {"Echo": grpc.unary_unary_rpc_method_handler(echo),
                "Wait": grpc.unary_unary_rpc_method_handler(wait)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Wait", handlers),))

@asynccontextmanager
async def serve(settings, telemetry):
    async with grpc_server(
        settings, [Servicer(object(), add, "test.Wait")], telemetry=telemetry
    ) as server:
        yield server
    print("cleaned up", flush=True)

if __name__ == "__main__":
    main("waiter", ServerSettings, serve)
"""

Spawn = Callable[..., Awaitable[asyncio.subprocess.Process]]


@pytest.fixture
async def spawn(tmp_path: Path) -> AsyncIterator[Spawn]:
    program = tmp_path / "waiter.py"
    program.write_text(PROGRAM)
    started: list[asyncio.subprocess.Process] = []
    found = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}

    async def start(**env: str) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(program),
            env={**found, **env},
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def _line(process: asyncio.subprocess.Process) -> str:
    return (await asyncio.wait_for(process.stdout.readline(), 60)).decode().strip()


async def _serving(process: asyncio.subprocess.Process) -> dict[str, Any]:
    line: dict[str, Any] = json.loads(await _line(process))
    return line


async def _until_refused(method: Any) -> None:
    while True:
        await method(b"", timeout=60)


@pytest.mark.process
async def test_a_second_signal_exits_at_once(spawn: Spawn) -> None:
    process = await spawn(BOS_SERVER_GRACE_S="60")
    serving = await _serving(process)
    assert serving["event"] == "serving"
    assert (serving["service"], serving["pid"]) == ("waiter", process.pid)
    async with grpc.aio.insecure_channel(serving["address"]) as channel:
        call = asyncio.ensure_future(channel.unary_unary("/test.Wait/Wait")(b""))
        assert await _line(process) == "entered"
        process.send_signal(signal.SIGTERM)
        with pytest.raises(grpc.aio.AioRpcError):
            await _until_refused(channel.unary_unary("/test.Wait/Echo"))
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 60) == 128 + signal.SIGTERM
        call.cancel()


@pytest.mark.process
async def test_an_idle_service_ends_on_sigint(spawn: Spawn) -> None:
    process = await spawn()
    await _serving(process)
    process.send_signal(signal.SIGINT)
    assert await _line(process) == "cleaned up"
    assert await asyncio.wait_for(process.wait(), 60) == 0


class OwnTelemetry(Settings):
    """Settings of a service that hold those of its telemetry."""

    telemetry: TelemetrySettings = TelemetrySettings(log_level="error")
    server: ServerSettings = ServerSettings(port=0)


def run_main(
    settings: type[Settings], serve: Callable[..., Any], **options: Any
) -> int | str | None:
    """The exit code of a service in this process."""
    with pytest.raises(SystemExit) as ended:
        chassis_process.main("probe", settings, serve, **options)
    return ended.value.code


def test_needs_are_opened_in_order_and_closed_after_the_service() -> None:
    seen: list[object] = []

    def need(name: str) -> chassis_process.Need:
        @asynccontextmanager
        async def opened(settings: OwnTelemetry, telemetry: Telemetry) -> AsyncIterator[str]:
            seen.append((f"open {name}", settings.server.port, telemetry.service))
            yield name.upper()
            seen.append(f"close {name}")

        return opened

    @asynccontextmanager
    async def serve(
        settings: OwnTelemetry, telemetry: Telemetry, **given: str
    ) -> AsyncIterator[object]:
        seen.append(given)
        os.kill(os.getpid(), signal.SIGTERM)
        yield object()
        seen.append("stopped")

    assert run_main(OwnTelemetry, serve, b=need("b"), a=need("a")) == 0
    assert seen == [
        ("open b", 0, "probe"),
        ("open a", 0, "probe"),
        {"b": "B", "a": "A"},
        "stopped",
        "close a",
        "close b",
    ]


def test_loop_of_a_process_is_uvloop_unless_another_is_named() -> None:
    loops: list[str] = []

    @asynccontextmanager
    async def serve(settings: OwnTelemetry, telemetry: Telemetry) -> AsyncIterator[object]:
        loops.append(type(asyncio.get_running_loop()).__module__.partition(".")[0])
        os.kill(os.getpid(), signal.SIGTERM)
        yield object()

    assert run_main(OwnTelemetry, serve) == 0
    assert run_main(OwnTelemetry, serve, loop_factory=asyncio.new_event_loop) == 0
    assert loops == ["uvloop", "asyncio"]


@pytest.mark.process
@pytest.mark.parametrize(
    ("imports", "loop"), [("import bos_chassis, grpc", "uvloop"), ("import grpc", "RuntimeError")]
)
def test_loop_is_refused_where_grpc_prepares_forks(imports: str, loop: str) -> None:
    program = (
        f"{imports}\n"
        "from bos_chassis.concurrency.loop import new_event_loop\n"
        "try: print(type(new_event_loop()).__module__)\n"
        "except RuntimeError: print('RuntimeError')\n"
    )
    environment = {
        name: value for name, value in os.environ.items() if name != "GRPC_ENABLE_FORK_SUPPORT"
    }
    said = subprocess.check_output(
        [sys.executable, "-c", program], env=environment, text=True, timeout=60
    )
    assert said.strip() == loop


def test_failing_need_ends_process_before_it_serves(capfd: pytest.CaptureFixture[str]) -> None:
    @asynccontextmanager
    async def wrong(settings: OwnTelemetry, telemetry: Telemetry) -> AsyncIterator[str]:
        raise ConfigurationError("BOS_AUTH_STATIC_KEY is too short")
        yield ""

    built: list[object] = []
    assert run_main(OwnTelemetry, built.append, key=wrong) == chassis_process.EXIT_CONFIGURATION
    assert not built
    assert capfd.readouterr().err == "OwnTelemetry: BOS_AUTH_STATIC_KEY is too short\n"


class WithStore(ServerSettings):
    store_url: str = ""


@pytest.mark.parametrize(
    ("url", "code", "said"), [("here", 0, ""), ("away", 78, "The store cannot be reached.")]
)
def test_argument_migrate_serves_nothing_and_fails_with_the_reason(
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    url: str,
    code: int,
    said: str,
) -> None:
    async def migrate(url: str) -> None:
        print("migrated", url)
        if url == "away":
            raise Unavailable("The store cannot be reached.")

    monkeypatch.setattr(sys, "argv", ["waiter", "migrate"])
    monkeypatch.setenv("BOS_SERVER_STORE_URL", url)
    served: list[object] = []
    assert run_main(WithStore, served.append, migrate=migrate) == code
    out, err = capfd.readouterr()
    assert (out, served) == (f"migrated {url}\n", [])
    assert said in err


@pytest.mark.requirement("Q-03")
def test_unusable_settings_prevent_the_start_and_are_named(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOS_SERVER_PORT", "seventy")
    served: list[object] = []
    assert run_main(ServerSettings, served.append) == chassis_process.EXIT_CONFIGURATION
    out, err = capfd.readouterr()
    assert (out, served) == ("", [])
    assert "BOS_SERVER_PORT" in err
    assert "Traceback" not in err
