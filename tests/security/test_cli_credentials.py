"""`bos` in folders and environments of others: whose server gets tokens and keys.

Every place is a real gRPC server that writes down what reaches it, and answers as a thief would.
"""

import asyncio
import fcntl
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest

from bos.identity.v1 import RefreshSessionResponse, Tokens
from bos_standalone.data_folder import own_folder

pytestmark = pytest.mark.security

BOS = Path(sys.executable).with_name("bos")
ACCESS, REFRESH, KEY = "the-access-token", "the-refresh-token", "the-key-of-the-environment"
PASSWORD = "the-password"
SECRETS = (ACCESS, REFRESH, KEY, PASSWORD)
INHERITED = ("PATH", "PYTHONPATH")
DOCUMENTS, MEMORY = ("documents", "list"), ("memory", "show")
WHOAMI, ASK = ("whoami",), ("ask", "Who leads?")
LOGIN = ("login", "ada", "--password-stdin")
"""One of each kind: of documents, of memory, of identity, of the gateway, and with a password."""


class Place(grpc.GenericRpcHandler):
    """A server that records every call of any method."""

    def __init__(self) -> None:
        self.address = ""
        self.seen: list[str] = []

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        metadata = [(entry[0], entry[1]) for entry in details.invocation_metadata or ()]
        self.seen.append(f"{details.method} {metadata}")

        async def answer(request: bytes, context: Any) -> bytes:
            self.seen.append(f"{details.method} {request!r}")
            if "RefreshSession" in (details.method or ""):
                tokens = Tokens(access_token="stolen", refresh_token="stolen too")
                tokens.access_token_lifetime.FromSeconds(600)
                return RefreshSessionResponse(tokens=tokens).SerializeToString()
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "")
            return b""

        return grpc.unary_unary_rpc_method_handler(answer)

    def got(self, secret: str) -> bool:
        return any(secret in call for call in self.seen)

    @property
    def secrets(self) -> list[str]:
        return [secret for secret in SECRETS if self.got(secret)]


@dataclass
class Scene:
    """Honest places, a thief's, a user's home, and a folder to stand in."""

    home: Path
    folder: Path
    gateway: Place = field(default_factory=Place)
    identity: Place = field(default_factory=Place)
    memory: Place = field(default_factory=Place)
    documents: Place = field(default_factory=Place)
    files: Place = field(default_factory=Place)
    thief: Place = field(default_factory=Place)

    def keep_tokens(self, *, fresh: bool = True) -> None:
        """A user signed in to the honest gateway, from any folder."""
        entry = {
            "identity_target": self.identity.address,
            "memory_target": self.memory.address,
            "documents_target": self.documents.address,
            "files_target": self.files.address,
            "username": "ada",
            "access_token": ACCESS,
            "refresh_token": REFRESH,
            "refresh_at": time.time() + (3600 if fresh else -1),
            "standalone": "",
        }
        file = self.home / "bos" / "tokens.json"
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.write_text(json.dumps({self.gateway.address: entry}))
        file.chmod(0o600)

    def kept(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.home / "bos" / "tokens.json").read_text())
        return found

    @contextmanager
    def planted(self, target: str) -> Iterator[None]:
        """A cloned folder: mode, owner and a held lock are as they should be."""
        data = self.folder / ".data"
        data.mkdir()
        content = {
            "target": target,
            "identity_target": self.thief.address,
            "memory_target": self.thief.address,
            "documents_target": self.thief.address,
            "files_target": self.thief.address,
            "registration": "a guess",
        }
        (data / "standalone.json").write_text(json.dumps(content))
        (data / "standalone.json").chmod(0o600)
        with (data / "standalone.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    async def bos(self, *arguments: str, **environment: str) -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            *(BOS, *arguments),
            env={
                **{name: os.environ[name] for name in INHERITED if name in os.environ},
                "HOME": str(self.home),
                "XDG_CONFIG_HOME": str(self.home),
                **environment,
            },
            cwd=self.folder,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate(PASSWORD.encode() + b"\n")
        assert process.returncode is not None
        return process.returncode, said.decode()


@pytest.fixture
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    made = Scene(tmp_path / "home", tmp_path / "clone")
    made.home.mkdir()
    made.folder.mkdir()
    # So that what registers here in this process is what `bos` looks up.
    monkeypatch.setenv("XDG_CONFIG_HOME", str(made.home))
    async with AsyncExitStack() as stack:
        honest = (made.gateway, made.identity, made.memory, made.documents, made.files)
        for place in (*honest, made.thief):
            server = grpc.aio.server(handlers=[place])
            place.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
            await server.start()
            stack.push_async_callback(server.stop, None)
        yield made


@pytest.mark.parametrize(
    ("command", "fresh"),
    [(DOCUMENTS, True), (DOCUMENTS, False), (WHOAMI, False), (ASK, False), (LOGIN, False)],
)
async def test_planted_file_with_the_users_gateway_gets_nothing(
    scene: Scene, command: tuple[str, ...], fresh: bool
) -> None:
    scene.keep_tokens(fresh=fresh)
    before = scene.kept()
    with scene.planted(scene.gateway.address):
        code, said = await scene.bos(*command)
    assert code == 3
    assert "no `bos serve all` of yours wrote it" in said
    assert scene.thief.seen == []
    assert scene.kept() == before


@pytest.mark.parametrize("command", [DOCUMENTS, ASK], ids=" ".join)
async def test_planted_target_does_not_get_the_key_of_the_environment(
    scene: Scene, command: tuple[str, ...]
) -> None:
    with scene.planted(scene.thief.address):
        code, _ = await scene.bos(*command, BOS_API_KEY=KEY)
    assert code == 3
    assert scene.thief.seen == []


@pytest.mark.parametrize(
    ("command", "fresh"),
    [(DOCUMENTS, True), (DOCUMENTS, False), (MEMORY, False), (WHOAMI, False)],
)
async def test_tokens_are_sent_only_where_they_were_obtained(
    scene: Scene, command: tuple[str, ...], fresh: bool
) -> None:
    scene.keep_tokens(fresh=fresh)
    await scene.bos(
        *command,
        BOS_TARGET=scene.gateway.address,
        BOS_IDENTITY_TARGET=scene.thief.address,
        BOS_MEMORY_TARGET=scene.thief.address,
        BOS_DOCUMENTS_TARGET=scene.thief.address,
        BOS_FILES_TARGET=scene.thief.address,
    )
    assert scene.thief.secrets == []
    honest = (scene.gateway, scene.identity, scene.memory, scene.documents, scene.files)
    assert any(place.secrets for place in honest), "the command did reach a server"
    kept = scene.kept().get(scene.gateway.address)
    assert kept is None or kept["identity_target"] == scene.identity.address


async def test_standalone_gets_no_tokens_from_elsewhere(
    scene: Scene,
) -> None:
    scene.keep_tokens(fresh=False)
    with own_folder(scene.folder / ".data") as data:
        data.announce(
            scene.gateway.address,
            data.api_key,
            {},
            identity_target=scene.thief.address,
            memory_target=scene.thief.address,
            documents_target=scene.thief.address,
            files_target=scene.thief.address,
        )
        for command in (MEMORY, DOCUMENTS, WHOAMI):
            await scene.bos(*command)
    assert scene.thief.secrets == []
    assert scene.identity.got(REFRESH)


async def test_standalone_gets_its_own_key_alone(
    scene: Scene,
) -> None:
    with own_folder(scene.folder / ".data") as data:
        data.announce(scene.gateway.address, data.api_key, {})
        await scene.bos("agents", BOS_API_KEY=KEY)
        assert scene.gateway.got(data.api_key)
        assert not scene.gateway.got(KEY)
        await scene.bos("--api-key", "typed-by-the-user", "agents")
    assert scene.gateway.got("typed-by-the-user")
    seen = len(scene.gateway.seen)
    code, said = await scene.bos("agents")
    assert (code, len(scene.gateway.seen)) == (3, seen), "nothing of it runs any more"
    assert "does not run" in said


async def test_environments_key_goes_to_the_environments_target(
    scene: Scene,
) -> None:
    with scene.planted(scene.thief.address):
        await scene.bos("agents", BOS_API_KEY=KEY, BOS_TARGET=scene.gateway.address)
        await scene.bos("memory", "show", BOS_API_KEY=KEY, BOS_TARGET=scene.gateway.address)
    assert scene.gateway.got(KEY)
    assert scene.thief.seen == []


async def test_tokens_of_a_standalone_follow_its_new_ports(scene: Scene) -> None:
    scene.keep_tokens()
    file = scene.home / "bos" / "tokens.json"
    entries = scene.kept()
    entries[scene.gateway.address]["standalone"] = str((scene.folder / ".data").resolve())
    entries[scene.gateway.address]["memory_target"] = "127.0.0.1:1"
    entries[scene.gateway.address]["documents_target"] = "127.0.0.1:1"
    file.write_text(json.dumps(entries))
    with own_folder(scene.folder / ".data") as data:
        data.announce(
            scene.gateway.address,
            data.api_key,
            {},
            identity_target=scene.identity.address,
            memory_target=scene.memory.address,
            documents_target=scene.documents.address,
            files_target=scene.files.address,
        )
        await scene.bos(*MEMORY)
        await scene.bos(*DOCUMENTS)
    assert scene.memory.got(ACCESS)
    assert scene.documents.got(ACCESS)
