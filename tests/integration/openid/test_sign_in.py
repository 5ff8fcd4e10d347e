"""Signing in by a real OpenID provider: in a browser and on another device."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from bos.identity.v1 import (
    BeginOpenIdLogInRequest,
    CreateInvitationRequest,
    DeactivateUserRequest,
    DeleteUserRequest,
    GetOpenIdProviderRequest,
    RefreshSessionRequest,
)
from bos_errors import BosError, ResourceExhausted
from bos_postgres import connect

from .issuer_harness import CALLBACK
from .openid_harness import Builder, Harness

pytestmark = pytest.mark.e2e


async def reason(call: Awaitable[Any]) -> str:
    with pytest.raises(BosError) as error:
        await call
    return error.value.reason


async def test_in_a_browser(harness: Harness) -> None:
    provider = await harness.call("GetOpenIdProvider", GetOpenIdProviderRequest())
    assert (provider.available, provider.name, provider.device_flow) == (True, "OpenID", True)
    claims = {"name": "Ada L.", "email": "ada@corp.example", "email_verified": True}
    await harness.issuer.knows("ada", **claims)
    signed_in = await harness.signed_in("ada")
    me = await harness.me(signed_in.tokens.access_token)
    assert (me.username, me.display_name, me.email) == ("ada", "Ada L.", "ada@corp.example")
    assert list(me.roles) == ["user"], "the first to sign in is no administrator"
    assert signed_in.session.current
    refresh = RefreshSessionRequest(refresh_token=signed_in.tokens.refresh_token)
    assert (await harness.call("RefreshSession", refresh)).tokens.access_token
    again = await harness.signed_in("ada")
    assert again.user.user_id == me.user_id


async def test_on_another_device(harness: Harness) -> None:
    begun = await harness.begin("")
    assert begun.user_code
    assert begun.verification_uri.startswith(harness.issuer.url)
    for _ in range(2):
        assert (await harness.finish(begun.handle)).pending.interval.seconds == 5
    async with harness.issuer.person("grace") as person:
        await person.types_the_code(begun.verification_uri_complete)
    async with asyncio.timeout(120):
        while not (finished := await harness.finish(begun.handle)).HasField("log_in"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # nothing sets an event
    assert finished.log_in.user.username == "grace"
    assert await reason(harness.finish(begun.handle)) == "OPENID_REFUSED"


async def test_with_a_client_secret(build: Builder) -> None:
    secret = "a secret: of %the test+client"
    harness = await build(client_id="bos-secret", client_secret=secret)
    assert (await harness.signed_in("ada")).user.username == "ada"
    wrong = await build(client_id="bos-secret", client_secret="another")
    assert await reason(wrong.signed_in("ada")) == "OPENID_UNAVAILABLE"


async def test_accounts_of_others_stay_theirs(harness: Harness) -> None:
    ada = await harness.registered("ada")
    await harness.issuer.knows(
        "another-ada", preferred_username="ada", email="ada@example.com", email_verified=True
    )
    other = await harness.signed_in("another-ada")
    assert other.user.user_id != ada.user.user_id
    assert (other.user.username, other.user.email) == ("ada-2", "")
    assert list(other.user.roles) == ["user"]


async def test_an_unverified_address_is_not_kept(harness: Harness) -> None:
    await harness.issuer.knows("eve", email="ada@corp.example", email_verified=False)
    assert (await harness.signed_in("eve")).user.email == ""


async def test_a_deactivated_account_is_refused(harness: Harness) -> None:
    root = (await harness.registered("root")).tokens.access_token
    user = (await harness.signed_in("ada")).user
    await harness.call("DeactivateUser", DeactivateUserRequest(user_id=user.user_id), root)
    assert await reason(harness.signed_in("ada")) == "USER_DEACTIVATED"


async def test_registration_can_be_closed(build: Builder) -> None:
    known = await build()
    await known.signed_in("ada")
    closed = await build(registration=False)
    assert (await closed.signed_in("ada")).user.username == "ada"
    assert await reason(closed.signed_in("eve")) == "REGISTRATION_CLOSED"


async def test_roles_and_groups_of_claims_at_every_sign_in(build: Builder) -> None:
    harness = await build(roles_claim="roles", groups_claim="groups")
    claims: dict[str, Any] = {"roles": ["user", "operator", "emperor"], "groups": ["sales", "a b"]}
    await harness.issuer.knows("ada", **claims)
    user = (await harness.signed_in("ada")).user
    assert (list(user.roles), list(user.groups)) == (["user", "operator"], ["sales"])
    await harness.issuer.knows("ada")
    signed_in = await harness.signed_in("ada")
    me = await harness.me(signed_in.tokens.access_token)
    assert (list(me.roles), list(me.groups)) == ([], [])
    await harness.issuer.knows("ada", groups=[f"group{number}" for number in range(33)])
    assert await reason(harness.signed_in("ada")) == "OPENID_TOO_MANY_GROUPS"


async def test_roles_stay_identitys_where_no_claim_is_named(harness: Harness) -> None:
    await harness.issuer.knows("ada", roles=["administrator"], groups=["sales"])
    user = (await harness.signed_in("ada")).user
    assert (list(user.roles), list(user.groups)) == (["user"], [])


async def test_one_person_twice_at_once_is_one_account(harness: Harness, postgres_dsn: str) -> None:
    both = await asyncio.gather(harness.signed_in("ada"), harness.signed_in("ada"))
    assert both[0].user.user_id == both[1].user.user_id
    async with connect(postgres_dsn, schema="identity") as connection:
        assert await connection.fetchval("SELECT count(*) FROM users") == 1


async def test_too_many_who_have_begun(build: Builder) -> None:
    harness = await build(max_flows_address=2)
    begun = [await harness.begin() for _ in range(2)]
    with pytest.raises(ResourceExhausted):
        await harness.begin()
    async with harness.issuer.person("ada") as person:
        came_back = await person.signs_in(begun[0].authorization_url)
    await harness.finish(begun[0].handle, **came_back)
    assert (await harness.begin()).handle, "who has finished leaves a place"


async def test_the_device_flow_can_be_switched_off(build: Builder) -> None:
    harness = await build(device_flow=False)
    assert await reason(harness.begin("")) == "OPENID_NO_DEVICE_FLOW"


async def test_without_a_provider(build: Builder) -> None:
    harness = await build(issuer=None)
    provider = await harness.call("GetOpenIdProvider", GetOpenIdProviderRequest())
    assert not provider.available
    request = BeginOpenIdLogInRequest(redirect_uri=CALLBACK)
    assert await reason(harness.call("BeginOpenIdLogIn", request)) == "OPENID_NOT_CONFIGURED"


async def test_the_store_holds_no_secret_of_a_sign_in(harness: Harness, postgres_dsn: str) -> None:
    begun = await harness.begin()
    async with connect(postgres_dsn, schema="identity") as connection:
        stored = str(await connection.fetch("SELECT * FROM openid_flows"))
    assert begun.handle not in stored
    state = begun.authorization_url.partition("state=")[2].partition("&")[0]
    assert len(state) > 30
    assert state not in stored


async def test_codes_of_who_administers_no_more_by_the_provider_end(
    build: Builder, postgres_dsn: str
) -> None:
    harness = await build(roles_claim="roles")
    await harness.issuer.knows("root", roles=["administrator"])
    root = (await harness.signed_in("root")).tokens.access_token
    code = (await harness.call("CreateInvitation", CreateInvitationRequest(), root)).code
    assert code
    await harness.issuer.knows("root", roles=["user"])
    await harness.signed_in("root")
    with pytest.raises(BosError):
        await harness.call("CreateInvitation", CreateInvitationRequest(), root)
    async with connect(postgres_dsn, schema="identity") as connection:
        assert await connection.fetchval("SELECT count(*) FROM invitations") == 0


async def test_a_deleted_account_leaves_no_trace_of_the_provider(
    harness: Harness, postgres_dsn: str
) -> None:
    root = (await harness.registered("root")).tokens.access_token
    user = (await harness.signed_in("ada")).user
    await harness.call("DeleteUser", DeleteUserRequest(user_id=user.user_id), root)
    async with connect(postgres_dsn, schema="identity") as connection:
        assert await connection.fetchval("SELECT count(*) FROM external_identities") == 0
    assert (await harness.signed_in("ada")).user.user_id != user.user_id
