"""An OpenID provider that fails, lies, or has been taken over."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import grpc
import pytest
from aiohttp import web
from identity_harness import Starter, sql
from scripted_provider import ScriptedProvider

from bos.identity.v1 import (
    BeginOpenIdLogInRequest,
    FinishOpenIdLogInRequest,
    OpenIdServiceStub,
)
from bos_chassis.channels import translate_rpc_errors
from bos_errors import BosError, ConfigurationError, PermissionDenied
from bos_identity.administration.invitations import Invitations, NewInvitation
from bos_identity.openid.settings import OpenIdSettings
from bos_identity.service import SCHEMA
from bos_postgres import open_database
from bos_postgres.audit import By
from bos_testkit.audit import until_audited

CALLBACK = "http://127.0.0.1:1234/callback"


@dataclass
class Client:
    """Signs in at identity."""

    stub: Any
    provider: ScriptedProvider
    dsn: str

    async def begin(self, redirect_uri: str = "") -> Any:
        with translate_rpc_errors():
            request = BeginOpenIdLogInRequest(redirect_uri=redirect_uri)
            return await self.stub.BeginOpenIdLogIn(request, timeout=60)

    async def finish(self, handle: str) -> Any:
        with translate_rpc_errors():
            return await self.stub.FinishOpenIdLogIn(
                FinishOpenIdLogInRequest(handle=handle), timeout=60
            )

    async def refused(self, handle: str) -> str:
        with pytest.raises(BosError) as error:
            await self.finish(handle)
        return error.value.reason

    async def pause_is_over(self) -> None:
        await sql(self.dsn, "UPDATE openid_flows SET next_poll_at = now()")


@pytest.fixture
async def client(
    start: Starter, provider: ScriptedProvider, postgres_dsn: str
) -> AsyncIterator[Client]:
    running = await start(openid=OpenIdSettings.load(issuer=provider.url, client_id="bos"))
    async with grpc.aio.insecure_channel(running.address) as channel:
        yield Client(OpenIdServiceStub(channel), provider, postgres_dsn)


async def unavailable(client: Client, redirect_uri: str) -> str:
    with pytest.raises(BosError) as error:
        await client.begin(redirect_uri)
    assert error.value.reason == "OPENID_UNAVAILABLE"
    return error.value.message


LIES: list[dict[str, Any]] = [
    {"issuer": "https://evil.example"},
    {"token_endpoint": "https://evil.example/token"},
    {"jwks_uri": None},
    {"userinfo_endpoint": "http://169.254.169.254/latest"},
    {"authorization_endpoint": "javascript:alert(1)"},
    {"authorization_endpoint": "https://a.example/\n\x1b[2J"},
    {"body": b"[]"},
    {"body": b"[" * 100_000},
    {"body": b'"' + b"a" * 300_000 + b'"'},
    {"status": 302, "headers": {"Location": "/openid-configuration"}},
]
UNSAFE_DEVICES: list[dict[str, Any]] = [
    {"device_code": None},
    {"user_code": "A\x1b[2J"},
    {"verification_uri": "javascript:alert(1)"},
    {"verification_uri_complete": "file:///etc/passwd"},
]


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: str(lie)[:60])
async def test_invalid_configuration_is_not_used(client: Client, lie: dict[str, Any]) -> None:
    if {"body", "status"} & set(lie):
        client.provider.raw["openid-configuration"] = web.Response(**lie)
    else:
        client.provider.configuration = lie
    assert "evil" not in await unavailable(client, CALLBACK)
    client.provider.configuration = {}
    assert (await client.begin(CALLBACK)).authorization_url, "a provider that is mended is used"


@pytest.mark.parametrize("lie", UNSAFE_DEVICES, ids=str)
async def test_an_unsafe_device_code_is_not_shown(client: Client, lie: dict[str, Any]) -> None:
    client.provider.device = lie
    await unavailable(client, "")
    client.provider.device = {}
    assert (await client.begin()).user_code == "ABCD"


@pytest.mark.parametrize(("interval", "seconds"), [(2, 2), (None, 5), (-7, 1), (1e9, 60)])
async def test_the_pause_can_be_waited(client: Client, interval: Any, seconds: int) -> None:
    client.provider.device = {"interval": interval}
    assert (await client.begin()).interval.seconds == seconds


async def test_polling_interval_of_the_provider_is_kept(client: Client) -> None:
    begun = await client.begin()
    client.provider.token = [{"error": "authorization_pending"}]
    assert (await client.finish(begun.handle)).pending.interval.seconds == 1
    await client.pause_is_over()
    client.provider.token = [{"error": "slow_down"}]
    assert (await client.finish(begun.handle)).pending.interval.seconds == 6
    assert (await client.finish(begun.handle)).pending.interval.seconds == 6, (
        "the provider was not called"
    )
    await client.pause_is_over()
    client.provider.token = [client.provider.granted()]
    assert (await client.finish(begun.handle)).log_in.user.user_id


async def test_a_refusal_ends_the_sign_in_and_a_failure_does_not(client: Client) -> None:
    begun = await client.begin()
    client.provider.token = [{"error": "invalid_client"}]
    assert await client.refused(begun.handle) == "OPENID_UNAVAILABLE"
    await client.pause_is_over()
    client.provider.token = [client.provider.granted()]
    assert (await client.finish(begun.handle)).log_in.user.user_id
    for error in ("access_denied", "made up"):
        begun = await client.begin()
        client.provider.token = [{"error": error}]
        for _ in range(2):
            assert await client.refused(begun.handle) == "OPENID_REFUSED"
    (entry, *_) = await until_audited(client.dsn, SCHEMA, "session.refused")
    assert (entry["outcome"], entry["actor"]) == ("refused", "")


@pytest.mark.parametrize("person", [{"sub": "eve"}, {"name": "Ada"}], ids=str)
async def test_claims_of_another_subject_are_refused(
    client: Client, person: dict[str, Any]
) -> None:
    begun = await client.begin()
    client.provider.token, client.provider.person = [client.provider.granted()], person
    assert await client.refused(begun.handle) == "OPENID_REFUSED"


async def test_former_administrator_by_openid_makes_no_code(client: Client) -> None:
    begun = await client.begin()
    client.provider.token = [client.provider.granted()]
    user = (await client.finish(begun.handle)).log_in.user
    # As the statement sees it, when the role went after the call was let in.
    new = NewInvitation((), (), 600.0, UUID(user.user_id))
    async with open_database(client.dsn, schema=SCHEMA) as pool:
        with pytest.raises(PermissionDenied):
            await Invitations(pool).make(new, By(user.user_id))
        await pool.execute("UPDATE users SET roles = '{administrator}'")
        assert (await Invitations(pool).make(new, By(user.user_id)))[1]


@pytest.mark.parametrize(
    "wrong",
    [
        {"client_id": ""},
        {"issuer": "http://login.example.com"},
        {"origins": ["ftp://login.example.com"]},
        {"redirect_uris": ["http://app.example.com/callback"]},
        {"redirect_uris": ["https://app.example.com/callback#x"]},
        {"scopes": ["profile"]},
        {"client_secret": "a", "client_secret_file": "/nowhere"},
    ],
    ids=str,
)
def test_settings_that_are_not_safe_are_refused(wrong: dict[str, Any]) -> None:
    good = {"issuer": "https://login.example.com", "client_id": "bos"}
    assert OpenIdSettings.load(**good)
    with pytest.raises(ConfigurationError):
        OpenIdSettings.load(**{**good, **wrong})
