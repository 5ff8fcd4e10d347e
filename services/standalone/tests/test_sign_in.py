"""Sign-in to a standalone: local user, accounts, and required secrets on a network address."""

from __future__ import annotations

import stat
from collections.abc import Callable
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
from bos_chassis.names import ROLES
from bos_chassis.telemetry import Telemetry
from bos_client import BosClient
from bos_errors import ConfigurationError, NotFound
from bos_identity.accounts import LOCAL_USER_ID
from bos_standalone.service import serve_all
from bos_standalone.settings import StandaloneSettings

PASSWORD = "correct horse battery"


@pytest.fixture(autouse=True)
def quick(nothing_configured: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOS_IDENTITY_ARGON2_MEMORY_KIB", "8")
    monkeypatch.setenv("BOS_IDENTITY_ARGON2_TIME_COST", "1")
    monkeypatch.setenv("BOS_STANDALONE_REST", "false")


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


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::"])
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
