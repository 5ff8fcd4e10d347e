"""Bos as people run it: ``bos serve all``, or a process for each service, over TLS or not."""

import json
import sqlite3
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bos_chassis.auth.callers import RunTokenSigner, generate_keypair
from bos_chassis.settings import TlsSettings
from bos_identity.accounts import LOCAL_USER_ID
from bos_standalone.rest import find_binary
from bos_testkit.certificates import Authority
from bos_testkit.processes import RunningProcess, running_process, service_process, tls_environment

from .flood_targets import Target, behind_tls

BOS = Path(sys.executable).with_name("bos")
_KEY = "a-key-of-honest-callers"
_ISSUER = "https://identity.test"
_UNUSED = "127.0.0.1:1"


@dataclass
class Deployment:
    """Everything that runs, and what honest callers have."""

    key: str
    folder: Path
    signer: RunTokenSigner | None = None
    """Signs tokens like a gateway; None where only the gateway can."""
    targets: dict[str, Target] = field(default_factory=dict)
    logs: dict[str, Path] = field(default_factory=dict)

    def logged(self) -> str:
        """What the services said."""
        return "".join(log.read_text() for log in self.logs.values() if log.exists())


@asynccontextmanager
async def separate(
    dsn: str, folder: Path, authority: Authority | None = None
) -> AsyncIterator[Deployment]:
    """Identity, memory, gateway, mcp_db and REST as processes; over TLS with an ``authority``.

    Their logs go to ``folder``. The protocols service that people use demand no certificate.
    """
    private, public = generate_keypair()
    made = Deployment(_KEY, folder, RunTokenSigner(private))
    async with AsyncExitStack() as stack:
        starter = _Starter(made, stack, authority, public)
        rest_key, proxy = proxy_key(folder)
        signing = folder / "signing.pem"
        signing.write_text(generate_keypair()[0])
        behind = {"BOS_AUTH_PROXY_PUBLIC_KEYS": proxy}
        store = {"STORE_URL": dsn}
        await starter.people(
            "identity",
            behind,
            **store,
            ISSUER=_ISSUER,
            SIGNING_KEY_FILES=json.dumps([str(signing)]),
        )
        identity = {
            "BOS_AUTH_IDENTITY_TARGET": made.targets["identity"].address,
            "BOS_AUTH_ISSUER": _ISSUER,
        }
        await starter.people("memory", {**behind, **identity}, **store)
        await starter.people(
            "gateway",
            {**behind, **identity},
            **store,
            RUN_TOKEN_PRIVATE_KEY=private,
            PLANNER_TARGET=_UNUSED,
            COMPOSER_TARGET=_UNUSED,
            AGENT_TARGETS=f"sql={_UNUSED}",
        )
        await starter.mcp_db(_company(folder))
        await starter.rest(rest_key)
        yield made


@dataclass
class _Starter:
    made: Deployment
    stack: AsyncExitStack
    authority: Authority | None
    run_token_key: str

    async def people(self, name: str, more: Mapping[str, str], **own: str) -> None:
        """A service that people call themselves."""
        prefix = f"BOS_{name.upper()}_"
        settings = {**more, **{prefix + key: value for key, value in own.items()}}
        tls = self._issued(name)
        running = await self._service(name, settings, tls, certificate=False)
        self._add(name, running, behind_tls(tls, certificate=False))

    async def mcp_db(self, database: Path) -> None:
        """Databases, for agents alone."""
        settings = {
            "BOS_DATABASE_URL": f"sqlite:///{database}",
            "BOS_DATABASE_ALLOWED_TABLES": "customers",
        }
        tls = self._issued("mcp_db")
        running = await self._service("mcp_db", settings, tls, certificate=True)
        self._add("mcp_db", running, behind_tls(self._issued("sql"), certificate=True))

    async def rest(self, key_file: Path) -> None:
        """REST, which itself speaks plain text: what is in front of it speaks TLS."""
        binary = find_binary(None)
        assert binary is not None, "build it first: make rest"
        tls = self._issued("rest")
        settings = {
            "BOS_REST_PORT": "0",
            "BOS_REST_SIGNING_KEY_FILE": str(key_file),
            **{
                f"BOS_REST_{name.upper()}_TARGET": self.made.targets[name].address
                for name in ("gateway", "identity", "memory")
            },
            **(tls_environment(tls) if tls else {}),
        }
        settings.pop("BOS_TLS_CLIENT_CERTIFICATES", None)
        log = self.made.logs["rest"] = self.made.folder / "rest.log"
        running = await self.stack.enter_async_context(
            running_process(binary, settings=settings, log=log)
        )
        self._add("rest", running, {})

    async def _service(
        self, name: str, settings: Mapping[str, str], tls: TlsSettings | None, *, certificate: bool
    ) -> RunningProcess:
        everywhere = {
            "BOS_AUTH_STATIC_KEY": _KEY,
            "BOS_AUTH_STATIC_KEY_USER": str(LOCAL_USER_ID),
            # Also where they must not be used.
            "BOS_AUTH_RUN_TOKEN_PUBLIC_KEYS": self.run_token_key,
            **(tls_environment(tls, client_certificates=certificate) if tls else {}),
        }
        log = self.made.logs[name] = self.made.folder / f"{name}.log"
        service = service_process(f"bos_{name}", {**everywhere, **settings}, log)
        return await self.stack.enter_async_context(service)

    def _issued(self, name: str) -> TlsSettings | None:
        return None if self.authority is None else self.authority.issue(name)

    def _add(self, name: str, running: RunningProcess, reached: Mapping[str, str]) -> None:
        self.made.targets[name] = Target(
            name, running.address, running.pid, self.made.key, **reached
        )


@asynccontextmanager
async def standalone(folder: Path, **settings: str) -> AsyncIterator[Deployment]:
    """``bos serve all``: all services but REST are one process."""
    settings = {
        "BOS_STANDALONE_REST_PORT": "0",
        "BOS_STANDALONE_DEMO_DOCUMENTS": "false",
        **settings,
    }
    async with running_process(
        *(BOS, "serve", "all"),
        settings=settings,
        up=b"Ctrl-C stops.",
        log=folder / "all.log",
        folder=folder,
    ) as running:
        content = json.loads((folder / ".data/standalone.json").read_text())
        made = Deployment(content["api_key"], folder)
        made.logs = {"all": folder / "all.log", "services": folder / ".data/standalone.log"}
        addresses = {
            "gateway": content["target"],
            "identity": content["identity_target"],
            "memory": content["memory_target"],
        }
        for name, address in addresses.items():
            made.targets[name] = Target(name, address, running.pid, made.key)
        assert content["rest_url"], "build it first: make rest"
        address = content["rest_url"].removeprefix("http://")
        made.targets["rest"] = Target("rest", address, child(running.pid, "bos-rest"), made.key)
        yield made


def child(parent: int, name: str) -> int:
    """The process of ``parent`` whose command line has ``name`` in it."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    (found,) = [int(one) for one in children if name in Path(f"/proc/{one}/cmdline").read_text()]
    return found


def _company(folder: Path) -> Path:
    database = folder / "company.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript(
            "CREATE TABLE customers (name TEXT); INSERT INTO customers VALUES ('Asha');"
        )
    return database


def proxy_key(folder: Path) -> tuple[Path, str]:
    """The key by which services know REST: its file, and the public half."""
    key, file = Ed25519PrivateKey.generate(), folder / "rest.key"
    file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return file, public.decode()
