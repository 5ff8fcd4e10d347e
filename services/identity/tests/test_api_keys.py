"""API keys: scoped, expiring, shown once, revoked; what other services make of credentials."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import jwt
import pytest
from identity_harness import Caller, Starter, refused, sql

from bos.identity.v1 import CreatePasswordResetRequest as ResetRequest
from bos_chassis.auth.callers import Principal, set_caller
from bos_chassis.auth.session_check import SessionCheck
from bos_chassis.auth.user_tokens import open_authenticator
from bos_chassis.channels import Channels
from bos_chassis.settings import AuthSettings
from bos_chassis.telemetry import Telemetry
from bos_errors import (
    BosError,
    FailedPrecondition,
    InvalidArgument,
    PermissionDenied,
    Unauthenticated,
    Unavailable,
)
from bos_identity.accounts import LOCAL_USER_ID
from bos_identity.credentials.callers import Callers
from bos_postgres import connect

ACCOUNT = ["account"]


async def make(identity: Caller, token: str, scopes: list[str] | None = None, **more: Any) -> Any:
    return await identity.do(
        "CreateApiKey", token, **{"name": "ci", "scopes": scopes or ACCOUNT, **more}
    )


async def exchange(identity: Caller, key: str) -> str:
    found = await identity.do("ExchangeApiKey", api_key=key)
    assert 0 < found.access_token_lifetime.seconds <= 60
    return str(found.access_token)


async def ada(identity: Caller) -> str:
    await identity.register("ada")
    return (await identity.log_in("ada")).tokens.access_token


async def key_refused(identity: Caller, key: str) -> None:
    with pytest.raises(Unauthenticated) as error:
        await exchange(identity, key)
    assert error.value.reason == "API_KEY_INVALID"


async def test_a_key_acts_as_its_user_within_its_scopes(
    identity: Caller, postgres_dsn: str
) -> None:
    token = await ada(identity)
    made = await make(identity, token)
    assert made.secret.startswith("bosk_")
    assert (await identity.me(made.secret)).username == "ada"
    claims = jwt.decode(await exchange(identity, made.secret), options={"verify_signature": False})
    assert (claims["key"], claims["scopes"]) == (made.api_key.key_id, ACCOUNT)
    assert claims["exp"] - claims["iat"] <= 60
    assert set(claims["roles"]) == {"user", "administrator"}
    assert "sid" not in claims
    async with connect(postgres_dsn, schema="identity") as connection:
        stored = str([tuple(row) for row in await connection.fetch("SELECT * FROM api_keys")])
    assert made.secret.split("_", 2)[2] not in stored


async def test_the_token_of_a_key_is_as_limited_as_the_key(identity: Caller) -> None:
    made = await make(identity, await ada(identity), ["runs.ask"])
    for credential in (made.secret, await exchange(identity, made.secret)):
        with pytest.raises(PermissionDenied) as error:
            await identity.me(credential)
        assert error.value.reason == "SCOPE_REQUIRED"
        assert error.value.metadata == {"scope": "account"}
        found = await identity.do("CheckSession", credential)
        assert found.open


@pytest.mark.parametrize(
    "change",
    [
        {"scopes": []},
        {"scopes": ["everything"]},
        {"name": ""},
        {"name": "a\u202eb"},
        {"lifetime": timedelta(seconds=59)},
        {"lifetime": timedelta(days=366, seconds=1)},
    ],
)
async def test_invalid_name_scopes_or_lifetime_of_a_key_is_refused(
    identity: Caller, change: dict[str, Any]
) -> None:
    with pytest.raises(InvalidArgument):
        await identity.do(
            "CreateApiKey", await ada(identity), **{"name": "ci", "scopes": ACCOUNT, **change}
        )


async def test_what_is_no_key_or_no_longer_one_is_refused_alike(
    identity: Caller, postgres_dsn: str
) -> None:
    token = await ada(identity)
    good, late, revoked = [await make(identity, token) for _ in range(3)]
    await sql(
        postgres_dsn,
        "UPDATE api_keys SET expires_at = now() WHERE key_id = $1",
        late.api_key.key_id,
    )
    await identity.do("RevokeApiKey", token, key_id=revoked.api_key.key_id)
    prefix, key_id, secret = good.secret.split("_", 2)
    swapped = revoked.secret.split("_", 2)[2]
    for bad in (
        late.secret,
        revoked.secret,
        f"{prefix}_{key_id}_{swapped}",
        f"{prefix}_{'0' * 32}_{secret}",
        f"{prefix}_{key_id}_",
        f"{prefix}_{key_id}",
        "bosk_",
        "bosk_\0_x",
        good.secret.upper(),
    ):
        await key_refused(identity, bad)
    with pytest.raises(Unauthenticated):
        await identity.me(f"{prefix}_{key_id}_{swapped}")
    assert await exchange(identity, good.secret)
    listed = await identity.do("ListApiKeys", token)
    assert [key.key_id for key in listed.api_keys] == [good.api_key.key_id]


async def test_administrator_makes_keys_for_service_accounts_only(identity: Caller) -> None:
    token = await ada(identity)
    eve = await identity.register("eve")
    with pytest.raises(FailedPrecondition) as error:
        await make(identity, token, user_id=eve.user_id)
    assert error.value.reason == "NOT_A_SERVICE_ACCOUNT"
    robot = (
        await identity.do("CreateServiceAccount", token, username="robot", groups=["finance"])
    ).user
    made = await make(identity, token, user_id=robot.user_id)
    me = await identity.me(made.secret)
    assert (me.username, list(me.groups), me.service_account) == ("robot", ["finance"], True)
    listed = await identity.do("ListApiKeys", token, user_id=robot.user_id)
    assert [key.name for key in listed.api_keys] == ["ci"]
    hers = await make(identity, (await identity.log_in("eve")).tokens.access_token)
    await identity.do("RevokeApiKey", token, key_id=hers.api_key.key_id)
    await key_refused(identity, hers.secret)


async def test_deactivation_and_password_reset_end_api_keys(identity: Caller) -> None:
    token = await ada(identity)
    for ending in ("deactivated", "reset"):
        user = await identity.register(ending)
        made = await make(identity, (await identity.log_in(ending)).tokens.access_token)
        short = await exchange(identity, made.secret)
        if ending == "deactivated":
            await identity.do("DeactivateUser", token, user_id=user.user_id)
        else:
            request = ResetRequest(user_id=user.user_id)
            code = (await identity.call("CreatePasswordReset", request, token)).code
            await identity.do("ResetPassword", code=code, new_password="another one, longer")
        await key_refused(identity, made.secret)
        # Here, where accounts are changed, also the token that is out already, and at once.
        for method in ("GetUser", "ListSessions"):
            with pytest.raises(Unauthenticated):
                await identity.do(method, short)
        assert not (await identity.do("CheckSession", short)).open
        # An account that is opened again does not bring its keys back.
        await identity.do("ReactivateUser", token, user_id=user.user_id)
        await key_refused(identity, made.secret)


async def test_a_key_is_made_or_the_account_closed_and_never_both(start: Starter) -> None:
    identity = await start()
    token = await ada(identity)
    for number in range(5):
        user = await identity.register(f"user{number}")
        hers = (await identity.log_in(f"user{number}")).tokens.access_token
        made, _ = await asyncio.gather(
            make(identity, hers),
            identity.do("DeactivateUser", token, user_id=user.user_id),
            return_exceptions=True,
        )
        if isinstance(made, BosError):
            continue
        await key_refused(identity, made.secret)


async def test_the_last_use_is_noted_to_the_hour(identity: Caller, postgres_dsn: str) -> None:
    token = await ada(identity)
    made = await make(identity, token)
    assert not made.api_key.HasField("last_use_time")
    await exchange(identity, made.secret)
    (key,) = (await identity.do("ListApiKeys", token)).api_keys
    assert key.last_use_time.seconds % 3600 == 0
    assert key.last_use_time.seconds


@asynccontextmanager
async def session_check(address: str) -> AsyncIterator[SessionCheck]:
    async with Channels(Telemetry.for_tests("gateway")) as channels:
        yield SessionCheck(channels, address)


async def test_key_has_its_users_rights_within_its_scopes(identity: Caller) -> None:
    token = await ada(identity)
    made = await make(identity, token, ["runs.ask", "memory"])
    settings = AuthSettings.load(issuer="bos-identity", identity_target=identity.address)
    async with open_authenticator(settings, "gateway", Telemetry.for_tests("gateway")) as door:
        assert door is not None
        principal = await door.authenticate({"authorization": f"Bearer {made.secret}"})
        assert principal is not None
        assert (principal.kind, principal.session_id) == ("api_key", made.api_key.key_id)
        assert principal.user_id == made.api_key.user_id
        assert principal.scopes == {"runs.ask", "memory"}
        person = await door.authenticate({"authorization": f"Bearer {token}"})
        assert person is not None
        assert (person.kind, person.scopes) == ("user_token", None)
        flipped = made.secret[:-1] + ("A" if made.secret[-1] != "A" else "B")
        await refused(door.authenticate({"authorization": f"Bearer {flipped}"}))


async def test_ended_sessions_and_keys_are_reported_to_services(identity: Caller) -> None:
    await identity.register("ada")
    mine, other = await identity.log_in("ada"), await identity.log_in("ada")
    made = await make(identity, mine.tokens.access_token, ["approvals.respond"])
    async with session_check(identity.address) as check:
        for credential in (other.tokens.access_token, made.secret):
            roles, groups = await check.require_open(f"Bearer {credential}")
            assert (roles, groups) == ({"user", "administrator"}, frozenset())
        own = mine.tokens.access_token
        await identity.do("RevokeSession", own, session_id=other.session.session_id)
        await identity.do("RevokeApiKey", own, key_id=made.api_key.key_id)
        for credential in (other.tokens.access_token, made.secret, "nonsense"):
            await refused(check.require_open(f"Bearer {credential}"))
        assert await check.require_open(f"Bearer {mine.tokens.access_token}")


async def test_that_identity_is_away_is_no_yes(identity: Caller) -> None:
    token = await ada(identity)
    async with session_check("127.0.0.1:1") as check:
        with pytest.raises(Unavailable):
            await check.require_open(f"Bearer {token}")


@pytest.mark.security
async def test_servicers_refuse_a_run_token_themselves() -> None:
    callers = Callers(None, None)  # type: ignore[arg-type]  it gets to neither
    set_caller(Principal(str(LOCAL_USER_ID), "run", "run/0/a", "run_token"), None)
    await refused(callers.caller())
    assert await callers.rights() is None
