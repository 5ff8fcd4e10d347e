"""Registration: the first account, by invitation, and open where it is configured."""

import asyncio
from typing import Any

import jwt
import pytest
from identity_harness import PASSWORD, Caller, Starter, coming_from, locked, sql

from bos.identity.v1 import (
    RegisterUserRequest,
)
from bos_chassis.settings import AuthSettings, ServerSettings
from bos_errors import (
    AlreadyExists,
    BosError,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
)
from bos_identity.administration.registration import all_local

TOKEN = "a bootstrap token of thirty-two characters"


async def closed(identity: Caller, username: str = "eve", **more: Any) -> str:
    with pytest.raises(PermissionDenied) as error:
        await identity.register(username, **more)
    return error.value.reason


async def test_only_the_first_account_is_the_administrator(identity: Caller) -> None:
    assert set((await identity.register("ada")).roles) == {"user", "administrator"}
    assert list((await identity.register("eve")).roles) == ["user"]


async def test_concurrent_first_registrations_make_one_administrator(
    start: Starter, postgres_dsn: str
) -> None:
    replicas = [await start(), await start()]
    # One is first and has not committed yet; all others come up to here.
    first = "INSERT INTO founder (founder_id) VALUES (gen_random_uuid())"
    async with locked(postgres_dsn, first) as founder:
        working = asyncio.gather(
            *(replicas[number % 2].register(f"user{number}") for number in range(10))
        )
        await founder.until_waiting(10)
        await founder.transaction.rollback()
        users = await working
    assert sum("administrator" in user.roles for user in users) == 1


async def test_registration_is_closed_to_clients_of_a_local_proxy(identity: Caller) -> None:
    async def register(username: str, **metadata: str) -> Any:
        request = RegisterUserRequest(
            username=username, password=PASSWORD, email=f"{username}@example.com"
        )
        return await identity.call("RegisterUser", request, **metadata)

    behind_a_proxy = (
        coming_from("203.0.113.7"),
        coming_from(""),
        {"x_forwarded_for": "203.0.113.7"},
        {"x_forwarded_for": "127.0.0.1, 203.0.113.7"},
        {"x_forwarded_for": "unknown"},
        {"x_real_ip": "127.0.0.1"},
        {"forwarded": "for=203.0.113.7"},
        {"x_forwarded_for": "203.0.113.7", **coming_from("127.0.0.1")},
    )
    for metadata in behind_a_proxy:
        with pytest.raises(PermissionDenied) as error:
            await register("eve", **metadata)
        assert error.value.reason == "REGISTRATION_CLOSED"
    assert await register("eve", **coming_from("127.0.0.1"))
    assert await register("ada")


async def test_reachable_service_closes_registration_by_default(start: Starter) -> None:
    server = ServerSettings.load(host="0.0.0.0", grace_s=0.1)
    assert await closed(await start(server=server)) == "REGISTRATION_CLOSED"
    assert await (await start(server=server, registration_open=True)).register("ada")


@pytest.mark.parametrize(
    ("peer", "forwarded_for", "believed", "local"),
    [
        ("ipv4:127.0.0.1:5", "", "", True),
        ("ipv6:%5B::1%5D:5", "::1", "127.0.0.1", True),
        ("ipv4:127.0.0.1:5", "", "10.0.0.1", False),
        ("ipv4:127.0.0.1:5", "10.0.0.1, 127.0.0.1", "", False),
        ("", "", "", False),
    ],
)
def test_a_call_is_local_if_every_hop_is(
    peer: str, forwarded_for: str, believed: str, local: bool
) -> None:
    assert all_local(peer, forwarded_for, believed) is local


async def test_first_account_needs_the_bootstrap_token(start: Starter) -> None:
    identity = await start(registration_open=False, bootstrap_token=TOKEN)
    assert await closed(identity, "eve") == "REGISTRATION_CLOSED"
    assert await closed(identity, "eve", invitation=TOKEN + "!") == "INVITATION_INVALID"
    assert "administrator" in (await identity.register("ada", invitation=TOKEN)).roles
    assert await closed(identity, "eve", invitation=TOKEN) == "INVITATION_INVALID"


async def test_invitation_grants_its_roles_and_groups_once(start: Starter) -> None:
    first = await start()
    token = await first.administrator()
    identity = await start(registration_open=False)
    made = await identity.do(
        "CreateInvitation", token, roles=["user", "approver"], groups=["finance"]
    )
    user = await identity.register("ada", invitation=made.code)
    assert (set(user.roles), list(user.groups)) == ({"user", "approver"}, ["finance"])
    claims = jwt.decode(
        (await identity.log_in("ada")).tokens.access_token, options={"verify_signature": False}
    )
    assert (set(claims["roles"]), claims["groups"]) == ({"user", "approver"}, ["finance"])
    assert await closed(identity, "eve", invitation=made.code) == "INVITATION_INVALID"


@pytest.mark.parametrize("code", ["bootstrap token", "invitation"])
async def test_concurrent_uses_of_a_code_make_one_account(
    start: Starter, postgres_dsn: str, code: str
) -> None:
    identity = await start(bootstrap_token=TOKEN, hash_queue=20, registration_open=None)
    if code == "invitation":
        root = await identity.administrator()
        made = await identity.do("CreateInvitation", root)
    given = made.code if code == "invitation" else TOKEN
    before = await sql(postgres_dsn, "SELECT count(*) FROM users")
    answers = await asyncio.gather(
        *(identity.register(f"user{number}", invitation=given) for number in range(20)),
        return_exceptions=True,
    )
    reasons = [each.reason for each in answers if isinstance(each, PermissionDenied)]
    assert reasons == ["INVITATION_INVALID"] * 19
    assert await sql(postgres_dsn, "SELECT count(*) FROM users") == before + 1


async def test_an_invitation_that_led_to_no_account_can_still_be_used(identity: Caller) -> None:
    made = await identity.do("CreateInvitation", await identity.administrator())
    with pytest.raises(AlreadyExists) as taken:
        await identity.register("root", email="other@example.com", invitation=made.code)
    assert taken.value.metadata == {"field": "username"}
    with pytest.raises(AlreadyExists) as taken:
        await identity.register("other", email="ROOT@example.com", invitation=made.code)
    assert taken.value.metadata == {"field": "email"}
    with pytest.raises(InvalidArgument):
        await identity.register("ada", password="short", invitation=made.code)
    assert await identity.register("ada", invitation=made.code)


async def test_an_invitation_expires_and_can_be_revoked(start: Starter, postgres_dsn: str) -> None:
    identity = await start(registration_open=None)
    token = await identity.administrator()

    async def invite() -> Any:
        return await identity.do("CreateInvitation", token)

    async def listed() -> set[str]:
        found = await identity.do("ListInvitations", token)
        return {each.invitation_id for each in found.invitations}

    good, late, revoked = await invite(), await invite(), await invite()
    await sql(
        postgres_dsn,
        "UPDATE invitations SET expires_at = now() WHERE invitation_id = $1",
        late.invitation.invitation_id,
    )
    assert not await sql(
        postgres_dsn, "SELECT count(*) FROM invitations WHERE code_digest = $1", good.code.encode()
    )
    revoke = {"invitation_id": revoked.invitation.invitation_id}
    await identity.do("RevokeInvitation", token, **revoke)
    with pytest.raises(NotFound):
        await identity.do("RevokeInvitation", token, **revoke)
    assert await listed() == {good.invitation.invitation_id}
    for code in (late.code, revoked.code):
        assert await closed(identity, "eve", invitation=code) == "INVITATION_INVALID"
    assert await identity.register("ada", invitation=good.code)
    assert await listed() == set()


async def test_invitation_guesses_are_throttled_but_not_holders(start: Starter) -> None:
    identity = await start(address_attempts=3, throttle_first_s=100.0)
    made = await identity.do("CreateInvitation", await identity.administrator())
    for _ in range(2):
        assert await closed(identity, invitation="bosi_guess") == "INVITATION_INVALID"
    with pytest.raises(ResourceExhausted):
        await identity.register("eve", invitation="bosi_guess")
    assert await identity.register("ada", invitation=made.code)


async def test_asking_which_accounts_exist_is_slowed_down(start: Starter) -> None:
    identity = await start(address_attempts=3, throttle_first_s=100.0)
    await identity.register("ada")
    reasons = []
    for number in range(4):
        with pytest.raises(BosError) as error:
            await identity.register("ada", email=f"guess{number}@example.com")
        reasons.append(error.value.reason)
    assert reasons == ["ACCOUNT_TAKEN", "ACCOUNT_TAKEN", "LOGIN_THROTTLED", "LOGIN_THROTTLED"]


WARNING = "callers on this machine may register without invitation, and proxies are set"
NO_PROXY = AuthSettings.load(proxy_public_keys=None)


@pytest.mark.parametrize(
    ("settings", "is_said"),
    [({}, True), ({"auth": NO_PROXY}, False), ({"registration_open": False}, False)],
)
async def test_start_warns_where_a_proxy_makes_clients_look_local(
    start: Starter, settings: dict[str, Any], is_said: bool
) -> None:
    logs = (await start(**settings)).telemetry.logs
    assert (WARNING in [entry["event"] for entry in logs]) is is_said
