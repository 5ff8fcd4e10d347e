"""`bos` for operators in a folder with a foreign `.env`: what of the environment goes there.

Every place of it is a real server that writes down what reaches it: PostgreSQL's first messages,
HTTP of a model's endpoint, gRPC of planner and agents.
"""

import asyncio
import os
import struct
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest

from bos_chassis.auth.callers import generate_keypair

pytestmark = pytest.mark.security

BOS = Path(sys.executable).with_name("bos")
MODEL_KEY, PASSWORD = "the-model-key-of-the-environment", "the-password-of-the-environment"
OWN_KEY, OWN_PASSWORD = "the-key-of-the-file", "the-password-of-the-file"
SSL_REQUEST = 80877103
PRIVATE_KEY, _ = generate_keypair()


@dataclass
class Thief(grpc.GenericRpcHandler):
    """All the services that there are, and what each got."""

    store: str = ""
    model: str = ""
    target: str = ""
    passwords: list[bytes] = field(default_factory=list)
    requests: list[bytes] = field(default_factory=list)
    metadata: list[str] = field(default_factory=list)

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        entries = [(entry[0], entry[1]) for entry in details.invocation_metadata or ()]
        self.metadata.append(f"{details.method} {entries}")

        async def answer(request: bytes, context: Any) -> bytes:
            if "Health/Check" in (details.method or ""):
                return b"\x08\x01"  # SERVING, or the command would not go on to calls with a token
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "")
            return b""

        return grpc.unary_unary_rpc_method_handler(answer)

    async def database(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Ask for the password in clear, as PostgreSQL may."""
        try:
            while True:
                (size,) = struct.unpack("!i", await reader.readexactly(4))
                (code,) = struct.unpack("!i", (await reader.readexactly(size - 4))[:4])
                if code != SSL_REQUEST:
                    break
                writer.write(b"N")
            writer.write(b"R" + struct.pack("!ii", 8, 3))
            await reader.readexactly(1)
            (size,) = struct.unpack("!i", await reader.readexactly(4))
            self.passwords.append(await reader.readexactly(size - 4))
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    async def endpoint(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Refuse all model calls."""
        try:
            self.requests.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    def settings(self) -> dict[str, str]:
        """What makes `bos` go there."""
        return {
            "BOS_GATEWAY_STORE_URL": f"postgresql://bos@{self.store}/bos",
            "BOS_GATEWAY_PLANNER_TARGET": self.target,
            "BOS_GATEWAY_COMPOSER_TARGET": self.target,
            "BOS_GATEWAY_AGENT_TARGETS": f"sql={self.target}",
            "OPENAI_BASE_URL": f"http://{self.model}/v1",
            "BOS_MODEL": "any",
        }


@pytest.fixture
async def thief() -> AsyncIterator[Thief]:
    made = Thief()
    async with AsyncExitStack() as stack:
        for name, handler in (("store", made.database), ("model", made.endpoint)):
            server = await asyncio.start_server(handler, "127.0.0.1", 0)
            await stack.enter_async_context(server)
            setattr(made, name, f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
        calls = grpc.aio.server(handlers=[made])
        made.target = f"127.0.0.1:{calls.add_insecure_port('127.0.0.1:0')}"
        await calls.start()
        stack.push_async_callback(calls.stop, None)
        yield made


async def bos(folder: Path, *arguments: str, **environment: str) -> str:
    home = folder / "home"
    home.mkdir(exist_ok=True)
    process = await asyncio.create_subprocess_exec(
        *(BOS, *arguments),
        env={
            **{name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ},
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home),
            **environment,
        },
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    return said.decode()


OWN = {
    "OPENAI_API_KEY": MODEL_KEY,
    "PGPASSWORD": PASSWORD,
    "BOS_GATEWAY_RUN_TOKEN_PRIVATE_KEY": PRIVATE_KEY,
}
"""Environment of an operator of another Bos."""


def write_env(folder: Path, **settings: str) -> None:
    lines = [f"{name}='{value}'" for name, value in settings.items()]
    (folder / ".env").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    "url", ["postgresql://bos:@{}/bos", "postgresql://bos@{}/bos?password=", "postgres://{}"]
)
async def test_url_without_a_password_gets_none(thief: Thief, tmp_path: Path, url: str) -> None:
    write_env(tmp_path, BOS_GATEWAY_STORE_URL=url.format(thief.store))
    await bos(tmp_path, "runs", "adopted", **OWN)
    assert thief.passwords
    assert not any(PASSWORD.encode() in each for each in thief.passwords)


async def test_file_of_a_foreign_folder_gets_no_credential(thief: Thief, tmp_path: Path) -> None:
    write_env(tmp_path, **thief.settings())
    await bos(tmp_path, "doctor", "--model", **OWN)
    await bos(tmp_path, "runs", "log", "01a6a3a8-0000-7000-8000-000000000000", **OWN)
    assert thief.passwords, "it was asked for one"
    assert not any(PASSWORD.encode() in each for each in thief.passwords)
    assert not any(MODEL_KEY.encode() in each for each in thief.requests)
    assert thief.metadata
    assert not any("bos-run-token" in each for each in thief.metadata)


async def test_file_is_ignored_where_the_environment_decides(thief: Thief, tmp_path: Path) -> None:
    write_env(tmp_path, BOS_GATEWAY_PLANNER_TARGET=thief.target)
    own = {
        "BOS_GATEWAY_STORE_URL": "postgresql://bos@127.0.0.1:1/bos",
        "BOS_GATEWAY_COMPOSER_TARGET": "127.0.0.1:1",
        "BOS_GATEWAY_AGENT_TARGETS": "sql=127.0.0.1:1",
        **OWN,
    }
    said = await bos(tmp_path, "doctor", **own)
    assert "BOS_GATEWAY_PLANNER_TARGET" in said
    said = await bos(tmp_path, "doctor", BOS_GATEWAY_PLANNER_TARGET="127.0.0.1:1", **own)
    assert "BOS_GATEWAY_… (environment)" in said
    assert thief.metadata == []


async def test_what_a_file_holds_itself_goes_where_it_says(thief: Thief, tmp_path: Path) -> None:
    settings = thief.settings()
    settings["BOS_GATEWAY_STORE_URL"] = f"postgresql://bos:{OWN_PASSWORD}@{thief.store}/bos"
    write_env(
        tmp_path,
        **settings,
        OPENAI_API_KEY=OWN_KEY,
        BOS_GATEWAY_RUN_TOKEN_PRIVATE_KEY=PRIVATE_KEY,
    )
    await bos(tmp_path, "doctor", "--model", **OWN)
    assert any(OWN_PASSWORD.encode() in each for each in thief.passwords)
    assert any(OWN_KEY.encode() in each for each in thief.requests)
    assert any("bos-run-token" in each for each in thief.metadata)
    assert not any(MODEL_KEY.encode() in each for each in thief.requests)
