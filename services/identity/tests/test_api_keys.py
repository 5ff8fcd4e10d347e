"""API keys: scoped, expiring, shown once, revoked at once here and within a minute elsewhere."""

import asyncio
from typing import Any

import jwt
import pytest
from identity_harness import Caller, Starter

from bos.identity.v1 import (
    ChangePasswordRequest,
    CheckSessionRequest,
    CreateApiKeyRequest,
    CreateServiceAccountRequest,
    DeactivateUserRequest,
    ExchangeApiKeyRequest,
    GetUserRequest,
    ListApiKeysRequest,
    ListSessionsRequest,
    ListUsersRequest,
    ReactivateUserRequest,
    ResetPasswordRequest,
    RevokeApiKeyRequest,
)
from bos.identity.v1 import CreatePasswordResetRequest as ResetRequest
from bos_errors import (
    BosError,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    Unauthenticated,
)
from bos_postgres import connect

ACCOUNT = ["account"]


async def make(identity: Caller, token: str, scopes: list[str] | None = None, **more: Any) -> Any:
    request = CreateApiKeyRequest(**{"name": "ci", "scopes": scopes or ACCOUNT, **more})
    return await identity.call("CreateApiKey", request, token)


async def exchange(identity: Caller, key: str) -> str:
    found = await identity.call("ExchangeApiKey", ExchangeApiKeyRequest(api_key=key))
    assert 0 < found.access_token_lifetime.seconds <= 60
    return str(found.access_token)


async def ada(identity: Caller) -> str:
    await identity.register("ada")
    return (await identity.log_in("ada")).tokens.access_token


async def refused(identity: Caller, key: str) -> None:
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
        found = await identity.call("CheckSession", CheckSessionRequest(), credential)
        assert found.open


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("CreateApiKey", CreateApiKeyRequest(name="more", scopes=ACCOUNT)),
        ("ChangePassword", ChangePasswordRequest(current_password="x", new_password="y")),
        ("ListUsers", ListUsersRequest()),
    ],
)
async def test_no_key_makes_keys_changes_passwords_or_administers(
    identity: Caller, method: str, request_: Any
) -> None:
    made = await make(identity, await ada(identity))  # of an administrator
    with pytest.raises(PermissionDenied) as error:
        await identity.call(method, request_, made.secret)
    assert error.value.reason == "SIGN_IN_REQUIRED"


@pytest.mark.parametrize(
    "change",
    [
        {"scopes": []},
        {"scopes": ["everything"]},
        {"name": ""},
        {"name": "a\u202eb"},
    ],
)
async def test_a_key_needs_a_name_and_scopes_that_exist(
    identity: Caller, change: dict[str, Any]
) -> None:
    request = CreateApiKeyRequest(**{"name": "ci", "scopes": ACCOUNT, **change})
    with pytest.raises(InvalidArgument):
        await identity.call("CreateApiKey", request, await ada(identity))


@pytest.mark.parametrize("seconds", [59, 366 * 86400 + 1])
async def test_a_key_lives_for_a_minute_at_least_and_a_year_at_most(
    identity: Caller, seconds: int
) -> None:
    request = CreateApiKeyRequest(name="ci", scopes=ACCOUNT)
    request.lifetime.FromSeconds(seconds)
    with pytest.raises(InvalidArgument):
        await identity.call("CreateApiKey", request, await ada(identity))


async def test_what_is_no_key_or_no_longer_one_is_refused_alike(
    identity: Caller, postgres_dsn: str
) -> None:
    token = await ada(identity)
    good, late, revoked = [await make(identity, token) for _ in range(3)]
    async with connect(postgres_dsn, schema="identity") as connection:
        await connection.execute(
            "UPDATE api_keys SET expires_at = now() WHERE key_id = $1", late.api_key.key_id
        )
    await identity.call("RevokeApiKey", RevokeApiKeyRequest(key_id=revoked.api_key.key_id), token)
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
        await refused(identity, bad)
    with pytest.raises(Unauthenticated):
        await identity.me(f"{prefix}_{key_id}_{swapped}")
    assert await exchange(identity, good.secret)
    listed = await identity.call("ListApiKeys", ListApiKeysRequest(), token)
    assert [key.key_id for key in listed.api_keys] == [good.api_key.key_id]


async def test_keys_of_others_cannot_be_seen_or_ended(identity: Caller) -> None:
    token = await ada(identity)
    eve = await identity.register("eve")
    hers = (await identity.log_in("eve")).tokens.access_token
    made = await make(identity, token)
    for key_id in (made.api_key.key_id, eve.user_id, "no uuid"):
        with pytest.raises(NotFound, match="There is no such API key"):
            await identity.call("RevokeApiKey", RevokeApiKeyRequest(key_id=key_id), hers)
    hers_of_ada = ListApiKeysRequest(user_id=made.api_key.user_id)
    with pytest.raises(PermissionDenied):
        await identity.call("ListApiKeys", hers_of_ada, hers)
    assert not (await identity.call("ListApiKeys", ListApiKeysRequest(), hers)).api_keys
    with pytest.raises(PermissionDenied):
        await make(identity, hers, user_id=made.api_key.user_id)
    assert await exchange(identity, made.secret)
    theirs = await make(identity, hers)
    await identity.call("RevokeApiKey", RevokeApiKeyRequest(key_id=theirs.api_key.key_id), token)
    await refused(identity, theirs.secret)


async def test_administrator_makes_keys_for_service_accounts_only(
    identity: Caller,
) -> None:
    token = await ada(identity)
    eve = await identity.register("eve")
    with pytest.raises(FailedPrecondition) as error:
        await make(identity, token, user_id=eve.user_id)
    assert error.value.reason == "NOT_A_SERVICE_ACCOUNT"
    request = CreateServiceAccountRequest(username="robot", groups=["finance"])
    robot = (await identity.call("CreateServiceAccount", request, token)).user
    made = await make(identity, token, user_id=robot.user_id)
    me = await identity.me(made.secret)
    assert (me.username, list(me.groups), me.service_account) == ("robot", ["finance"], True)
    listed = await identity.call("ListApiKeys", ListApiKeysRequest(user_id=robot.user_id), token)
    assert [key.name for key in listed.api_keys] == ["ci"]


async def test_deactivation_and_password_reset_end_api_keys(
    identity: Caller,
) -> None:
    token = await ada(identity)
    for ending in ("deactivated", "reset"):
        user = await identity.register(ending)
        made = await make(identity, (await identity.log_in(ending)).tokens.access_token)
        short = await exchange(identity, made.secret)
        if ending == "deactivated":
            await identity.call(
                "DeactivateUser", DeactivateUserRequest(user_id=user.user_id), token
            )
        else:
            request = ResetRequest(user_id=user.user_id)
            code = (await identity.call("CreatePasswordReset", request, token)).code
            reset = ResetPasswordRequest(code=code, new_password="another one, longer")
            await identity.call("ResetPassword", reset)
        await refused(identity, made.secret)
        # Here, where accounts are changed, also the token that is out already, and at once.
        for method, request_ in (
            ("GetUser", GetUserRequest()),
            ("ListSessions", ListSessionsRequest()),
        ):
            with pytest.raises(Unauthenticated):
                await identity.call(method, request_, short)
        assert not (await identity.call("CheckSession", CheckSessionRequest(), short)).open
        # An account that is opened again does not bring its keys back.
        await identity.call("ReactivateUser", ReactivateUserRequest(user_id=user.user_id), token)
        await refused(identity, made.secret)


async def test_a_key_is_made_or_the_account_closed_and_never_both(start: Starter) -> None:
    identity = await start()
    token = await ada(identity)
    for number in range(5):
        user = await identity.register(f"user{number}")
        hers = (await identity.log_in(f"user{number}")).tokens.access_token
        made, _ = await asyncio.gather(
            make(identity, hers),
            identity.call("DeactivateUser", DeactivateUserRequest(user_id=user.user_id), token),
            return_exceptions=True,
        )
        if isinstance(made, BosError):
            continue
        await refused(identity, made.secret)


async def test_the_last_use_is_noted_to_the_hour(identity: Caller, postgres_dsn: str) -> None:
    token = await ada(identity)
    made = await make(identity, token)
    assert not made.api_key.HasField("last_use_time")
    await exchange(identity, made.secret)
    (key,) = (await identity.call("ListApiKeys", ListApiKeysRequest(), token)).api_keys
    assert key.last_use_time.seconds % 3600 == 0
    assert key.last_use_time.seconds
