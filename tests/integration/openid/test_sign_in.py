"""Signing in by a real OpenID provider; the secret that identity has there, in a file."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from bos.identity.v1 import (
    DeactivateUserRequest,
    GetOpenIdProviderRequest,
    RefreshSessionRequest,
)
from bos_errors import BosError, ResourceExhausted
from bos_postgres import connect

from .openid_harness import Builder, Harness

pytestmark = pytest.mark.e2e
SECRET = "a secret: of %the test+client"
VARIABLE = "BOS_IDENTITY_OPENID_CLIENT_SECRET_FILE"
NEVER, AT_ONCE = 36000.0, 1e-9


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


async def test_accounts_of_others_stay_theirs(harness: Harness) -> None:
    ada = await harness.registered("ada")
    await harness.issuer.knows(
        "another-ada", preferred_username="ada", email="ada@example.com", email_verified=True
    )
    other = await harness.signed_in("another-ada")
    assert other.user.user_id != ada.user.user_id
    assert (other.user.username, other.user.email) == ("ada-2", "")
    assert list(other.user.roles) == ["user"]


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


async def test_the_store_holds_no_secret_of_a_sign_in(harness: Harness, postgres_dsn: str) -> None:
    begun = await harness.begin()
    async with connect(postgres_dsn, schema="identity") as connection:
        stored = str(await connection.fetch("SELECT * FROM openid_flows"))
    assert begun.handle not in stored
    state = begun.authorization_url.partition("state=")[2].partition("&")[0]
    assert len(state) > 30
    assert state not in stored


async def outcome(harness: Harness) -> str:
    """The signed-in user, or the reason of a refusal."""
    try:
        return (await harness.signed_in("ada")).user.username
    except BosError as error:
        return error.reason


def unusable(harness: Harness) -> float | None:
    labels = {"service": "identity", "variable": VARIABLE}
    return harness.telemetry.registry.get_sample_value("bos_secret_file_unusable", labels)


async def test_a_secret_that_was_replaced_is_used_at_once(build: Builder, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("the one before")
    harness = await build(client_id="bos-secret", client_secret_file=file, files_refresh_s=NEVER)
    assert await outcome(harness) == "OPENID_UNAVAILABLE"
    file.write_text(f"{SECRET}\n")
    assert await outcome(harness) == "ada", "within the sign-in that the provider refuses at first"
    assert SECRET not in str(harness.telemetry.logs)


async def test_invalid_file_keeps_the_secret_and_is_logged(build: Builder, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(SECRET)
    harness = await build(client_id="bos-secret", client_secret_file=file, files_refresh_s=AT_ONCE)
    assert await outcome(harness) == "ada"
    for content in ("", "two\nlines", "\0" * 20, None):
        if content is None:
            file.unlink()
        else:
            file.write_text(content)
        assert await outcome(harness) == "ada", content
        assert unusable(harness) == 1, content
    assert "secret not replaced" in {each["event"] for each in harness.telemetry.logs}
    file.write_text("another")
    assert await outcome(harness) == "OPENID_UNAVAILABLE", "the one that was replaced is not used"
    assert unusable(harness) == 0
