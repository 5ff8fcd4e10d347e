import asyncio
import shutil
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from bos_chassis import probe
from bos_testkit.certificates import Authority
from bos_testkit.processes import free_port

KEY = "a-key-of-the-service"


async def asked(*arguments: str) -> int:
    """Exit code of the probe, which blocks, beside the server of this event loop."""
    return await asyncio.to_thread(probe.main, arguments)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


@pytest.fixture
def certificates(authority: Authority, tmp_path: Path) -> Path:
    """A folder as containers have it."""
    tls = authority.issue("echo")
    folder = tmp_path / "mounted"
    folder.mkdir()
    for source, name in (
        (tls.ca_file, "ca.crt"),
        (tls.cert_file, "tls.crt"),
        (tls.key_file, "tls.key"),
    ):
        shutil.copy(source, folder / name)
    return folder


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        known = self.headers.get("Authorization") == f"Bearer {KEY}"
        status = {"/healthz": 200, "/full": 503, "/models": 200 if known else 401}[self.path]
        self.send_response(status)
        self.end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing: standard error is what tests read."""


@pytest.fixture
def http_address() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("served", "code", "said"), [(True, 0, ""), (False, 1, "NOT_SERVING\n")])
async def test_service_passes_if_it_serves(
    start: Any, capsys: pytest.CaptureFixture[str], served: bool, code: int, said: str
) -> None:
    running = await start()
    await running.server.set_serving(served)
    assert await asked(f"grpc://{running.server.address}") == code
    assert capsys.readouterr().err.endswith(said)


async def test_service_that_is_not_there_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert await asked(f"grpc://127.0.0.1:{free_port()}") == 1
    assert "UNAVAILABLE" in capsys.readouterr().err


async def test_certificate_is_shown_to_the_service(
    start: Any, authority: Authority, certificates: Path
) -> None:
    running = await start(tls=authority.issue("gateway"))
    address = running.server.address
    assert await asked(f"grpcs://{address}", "--certificates", str(certificates)) == 0
    assert await asked(f"grpc://{address}", "--timeout", "5") == 1


async def test_missing_certificates_fail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await asked("grpcs://127.0.0.1:1", "--certificates", str(tmp_path)) == 1
    assert "ca.crt" in capsys.readouterr().err


async def test_http_service_passes_with_200_alone_and_gets_the_key(http_address: str) -> None:
    assert await asked(f"{http_address}/healthz") == 0
    assert await asked(f"{http_address}/full") == 1
    assert await asked(f"http://127.0.0.1:{free_port()}/healthz") == 1
    assert await asked(f"{http_address}/models", "--key", KEY) == 0
    assert await asked(f"{http_address}/models") == 1


@pytest.mark.parametrize("arguments", [["ftp://127.0.0.1"], ["grpcs://127.0.0.1:1"], []])
def test_wrong_arguments_are_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        probe.main(arguments)
    assert ended.value.code == 2
