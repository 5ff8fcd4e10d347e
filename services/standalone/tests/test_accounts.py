"""Accounts of a standalone: ``bos users`` and ``bos keys``, sign-in, required secrets."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from bos.identity.v1 import (
    GetUserRequest,
    IdentityServiceStub,
    LogInRequest,
    RegisterUserRequest,
    SignInMethod,
)
from bos_chassis.channels import translate_rpc_errors
from bos_chassis.names import ROLES
from bos_chassis.telemetry import Telemetry
from bos_client import BosClient
from bos_errors import ConfigurationError, NotFound, PermissionDenied
from bos_identity.accounts import LOCAL_USER_ID
from bos_identity.signing.key_ring import new_key_encryption_key
from bos_standalone.service import Standalone, serve_all
from bos_standalone.settings import StandaloneSettings

from .conftest import run_bos

PASSWORD, NEW = "correct horse battery", "another one, longer"
CODE = re.compile(r"\bbos[ip]_[\w-]{43}")
KEY = re.compile(r"\bbosk_[0-9a-f]{32}_[\w-]{43}")


@pytest.fixture(autouse=True)
def quick(nothing_configured: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOS_IDENTITY_ARGON2_MEMORY_KIB", "8")
    monkeypatch.setenv("BOS_IDENTITY_ARGON2_TIME_COST", "1")
    monkeypatch.setenv("BOS_STANDALONE_REST", "false")


@dataclass
class Person:
    """A user with a terminal and configuration folder of their own."""

    harness: Standalone
    home: Path

    async def bos(self, *arguments: str, code: int = 0, says: str = PASSWORD, key: str = "") -> str:
        """Output of a command, with this on its standard input."""
        addresses = self.harness.addresses
        done = await run_bos(
            self.home,
            *arguments,
            says=f"{says}\n",
            BOS_TARGET=self.harness.target,
            BOS_IDENTITY_TARGET=addresses["identity"],
            BOS_MEMORY_TARGET=addresses["memory"],
            **({"BOS_API_KEY": key} if key else {}),
        )
        assert done.code == code, (arguments, done)
        return done.out + done.err

    async def sign_up(self, name: str, *more: str) -> None:
        """Register, and sign in."""
        email = f"{name}@example.com"
        await self.bos("register", name, "--email", email, "--password-stdin", *more)
        await self.bos("login", name, "--password-stdin")


async def test_administrator_invites_assigns_roles_closes_accounts_and_makes_keys(
    tmp_path: Path, started_before: Callable[[Path], Path]
) -> None:
    settings = StandaloneSettings.load(data_dir=started_before(tmp_path / "data"), grace_s=0.1)
    async with serve_all(settings, Telemetry.for_tests("standalone")) as harness:
        ada, eve = _people(harness, tmp_path)
        await ada.sign_up("ada")
        assert "Roles: user, administrator" in await ada.bos("whoami")
        (code,) = CODE.findall(await ada.bos("users", "invite", "--group", "finance"))
        assert "finance" in await ada.bos("users", "invitations")
        await eve.sign_up("eve", "--invitation", code)
        assert "Groups: finance" in await eve.bos("whoami")
        assert "role administrator" in await eve.bos("users", "list", code=2)
        assert "eve; user, approver; in finance" in await ada.bos(
            "users", "roles", "eve", "user", "approver"
        )
        assert "in hr" in await ada.bos("users", "groups", "eve", "hr")
        assert "eve; user, approver\n" in await ada.bos("users", "groups", "eve", "--none")
        await ada.bos("users", "groups", "eve", code=2)
        assert "last administrator" in await ada.bos("users", "deactivate", "ada", code=1)

        (code,) = CODE.findall(await ada.bos("users", "reset-password", "eve"))
        said = await eve.bos("reset-password", "--code", code, "--password-stdin", says=NEW)
        assert "bos login eve" in said
        assert "wrong" in await eve.bos("login", "eve", "--password-stdin", code=2)
        await eve.bos("login", "eve", "--password-stdin", says=NEW)
        assert "deactivated" in await ada.bos("users", "deactivate", "eve")
        assert "deactivated" in await eve.bos("login", "eve", "--password-stdin", says=NEW, code=2)
        assert "deactivated" not in await ada.bos("users", "reactivate", "eve")
        assert "There is no user carl" in await ada.bos("users", "reactivate", "carl", code=2)
        await _keys_are_limited_to_their_scopes_and_revoked(ada, Person(harness, tmp_path))


async def _keys_are_limited_to_their_scopes_and_revoked(ada: Person, program: Person) -> None:
    made = await ada.bos("keys", "create", "reports", "--scope", "runs.read")
    (key,) = KEY.findall(made)
    assert "reports: runs.read" in await ada.bos("keys", "list")
    assert "no runs" in await program.bos("runs", "list", key=key)
    for refused in (("ask", "Who leads?"), ("whoami",), ("users", "list")):
        assert "Error" in await program.bos(*refused, key=key, code=2)

    await ada.bos("users", "add-service", "robot", "--group", "finance")
    (robots,) = KEY.findall(
        await ada.bos("keys", "create", "ci", "--scope", "account", "--for", "robot")
    )
    assert "Groups: finance" in await program.bos("whoami", key=robots)
    key_id = (await ada.bos("keys", "list", "--for", "robot")).split()[0]
    await ada.bos("keys", "revoke", key_id)
    assert await ada.bos("keys", "list", "--for", "robot") == ""


async def test_first_account_on_a_network_needs_the_bootstrap_token(
    tmp_path: Path, started_before: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = started_before(tmp_path / "data")
    own = data / "identity.key"
    keys = own.read_text().strip() if own.exists() else new_key_encryption_key()
    monkeypatch.setenv("BOS_IDENTITY_KEY_ENCRYPTION_KEYS", keys)
    settings = StandaloneSettings.load(data_dir=data, host="0.0.0.0", grace_s=0.1)
    async with serve_all(settings, Telemetry.for_tests("standalone")) as harness:
        port = harness.addresses["identity"].rpartition(":")[2]
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:

            async def register(name: str, invitation: str = "") -> set[str]:
                request = RegisterUserRequest(
                    username=name,
                    email=f"{name}@example.com",
                    password=PASSWORD,
                    invitation=invitation,
                )
                with translate_rpc_errors():
                    made = await IdentityServiceStub(channel).RegisterUser(request, timeout=20)
                return set(made.user.roles)

            with pytest.raises(PermissionDenied):
                await register("eve")
            assert harness.bootstrap_file is not None
            assert harness.bootstrap_file.stat().st_mode & 0o777 == 0o600
            token = harness.bootstrap_file.read_text().strip()
            assert "administrator" in await register("ada", token)
            with pytest.raises(PermissionDenied):
                await register("eve", token)


def _people(harness: Standalone, folder: Path) -> tuple[Person, Person]:
    homes = folder / "first", folder / "second"
    for home in homes:
        home.mkdir()
    return Person(harness, homes[0]), Person(harness, homes[1])


async def test_api_key_is_the_local_users_and_other_users_sign_in(
    tmp_path: Path, started_before: Callable[[Path], Path]
) -> None:
    data = started_before(tmp_path / "data")
    settings = StandaloneSettings.load(data_dir=data, grace_s=0.1)
    async with (
        serve_all(settings, Telemetry.for_tests("standalone")) as harness,
        grpc.aio.insecure_channel(harness.addresses["identity"]) as channel,
    ):
        identity = IdentityServiceStub(channel)
        key = (("authorization", f"Bearer {harness.api_key}"),)
        local = (await identity.GetUser(GetUserRequest(), metadata=key)).user
        assert (local.user_id, local.username) == (str(LOCAL_USER_ID), "local")
        assert local.sign_in.method == SignInMethod.SIGN_IN_METHOD_LOCAL_USER
        request = RegisterUserRequest(username="ada", email="a@example.com", password=PASSWORD)
        ada = (await identity.RegisterUser(request)).user
        login = await identity.LogIn(LogInRequest(username="ada", password=PASSWORD))
        async with (
            BosClient(harness.target, api_key=login.tokens.access_token) as hers,
            BosClient(harness.target, api_key=harness.api_key) as ours,
        ):
            run_id = (await hers.ask("List all tables in the database")).run_id
            assert (await hers.get_run(run_id)).user_id == ada.user_id
            with pytest.raises(NotFound):
                await ours.get_run(run_id)
            assert not (await ours.list_runs()).runs
            assert list((await ours.access()).roles) == sorted(ROLES)
            assert "approver" not in (await hers.access()).roles
    file = tmp_path / "data" / "identity.key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
async def test_network_address_requires_configured_secrets(
    tmp_path: Path, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A static key is not enough: users sign in with identity, whose keys are not configured.
    monkeypatch.setenv("BOS_AUTH_STATIC_KEY", "a-key-that-was-chosen")
    settings = StandaloneSettings.load(data_dir=tmp_path / "data", host=host)
    with pytest.raises(ConfigurationError, match="BOS_IDENTITY_KEY_ENCRYPTION_KEYS"):
        async with serve_all(settings, Telemetry.for_tests("standalone")):
            pass
    assert not (tmp_path / "data" / "postgres").exists()
