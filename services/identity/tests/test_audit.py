"""Audit trail of identity: each action with its entry, or neither; no content."""

import json
from typing import Any
from uuid import UUID

import pytest
from identity_harness import (
    PASSWORD,
    Caller,
    Starter,
    coming_from,
    refused,
    until,
)
from scripted_provider import ScriptedProvider

import bos.identity.v1 as contracts
from bos_errors import BosError, PermissionDenied, ResourceExhausted, Unauthenticated
from bos_identity.openid.settings import OpenIdSettings
from bos_identity.service import SCHEMA
from bos_postgres import connect
from bos_testkit.audit import AUDITED, audit_entries, audited, refused_entries, sealed_trail

ADDRESS = "203.0.113.7"
PLANTED = "planted"
NEW = f"{PLANTED} password, a new one"
NAMES = {
    "username": f"{PLANTED}-name",
    "email": f"{PLANTED}@example.com",
    "display_name": f"{PLANTED} name",
    "password": NEW,
}
CONNECTION = {
    "kind": "mail.imap",
    "label": PLANTED,
    "fields": {"host": PLANTED},
    "secret": PLANTED,
}
BY_ROOT: dict[str, dict[str, Any]] = {
    "CreateInvitation": {"groups": ["sales"]},
    "RevokeInvitation": {},
    "CreateServiceAccount": {"username": "robot"},
}
OF_ADA: dict[str, dict[str, Any]] = {
    "SetUserRoles": {"roles": ["user", "approver"]},
    "SetUserGroups": {"groups": ["sales"]},
    "DeactivateUser": {},
    "DeleteUser": {},
    "ReactivateUser": {},
    "CreatePasswordReset": {},
}
"""What the administrator does to her account."""
BY_ADA: dict[str, dict[str, Any]] = {
    "CreateApiKey": {"name": PLANTED, "scopes": ["account"]},
    "RevokeApiKey": {},
    "PutConnection": CONNECTION,
    "DeleteConnection": {"kind": "mail.imap"},
    "RevokeSession": {},
    "ChangePassword": {"current_password": PASSWORD, "new_password": NEW},
    "DeleteAccount": {"current_password": PASSWORD},
}
ANONYMOUS: dict[str, dict[str, Any]] = {
    "ResetPassword": {"new_password": NEW},
    "LogOut": {},
    "RegisterUser": NAMES,
    "LogIn": {"username": "ada", "password": PASSWORD, "client_name": PLANTED},
    "FinishOpenIdLogIn": {"client_name": PLANTED},
}


class Deeds:
    """An administrator and a user, and all that they can do."""

    def __init__(self, identity: Caller, provider: ScriptedProvider) -> None:
        self.identity = identity
        self.provider = provider
        self.root = self.ada = self.ada_id = ""

    async def begin(self) -> None:
        self.root = await self.identity.administrator()
        self.ada_id = (await self.identity.invited(self.root, "ada")).user_id
        self.ada = (await self.identity.log_in("ada")).tokens.access_token
        self.provider.person["name"] = PLANTED
        await self.do("FinishOpenIdLogIn", "203.0.113.8")

    async def do(self, method: str, address: str = ADDRESS) -> Any:
        """Call a method, and before it those that it needs."""
        needed = await self._needed(method, address)
        if method in OF_ADA:
            token, fields = self.root, {"user_id": self.ada_id, **OF_ADA[method]}
        elif method in BY_ROOT:
            token, fields = self.root, BY_ROOT[method]
        elif method in BY_ADA:
            token, fields = self.ada, BY_ADA[method]
        else:
            token, fields = "", ANONYMOUS[method]
        request = getattr(contracts, f"{method}Request")(**fields, **needed)
        return await self.identity.call(method, request, token, **coming_from(address))

    async def _needed(self, method: str, address: str) -> dict[str, str]:
        match method:
            case "RevokeInvitation":
                made = await self.do("CreateInvitation")
                return {"invitation_id": made.invitation.invitation_id}
            case "RegisterUser":
                return {"invitation": (await self.do("CreateInvitation")).code}
            case "ResetPassword":
                return {"code": (await self.do("CreatePasswordReset")).code}
            case "RevokeApiKey":
                return {"key_id": (await self.do("CreateApiKey")).api_key.key_id}
            case "DeleteConnection":
                await self.do("PutConnection")
            case "LogOut":
                return {"refresh_token": (await self.identity.log_in("ada")).tokens.refresh_token}
            case "RevokeSession":
                return {"session_id": (await self.identity.log_in("ada")).session.session_id}
            case "FinishOpenIdLogIn":
                self.provider.token = [self.provider.granted()]
                begin = contracts.BeginOpenIdLogInRequest()
                begun = self.identity.call("BeginOpenIdLogIn", begin, **coming_from(address))
                return {"handle": (await begun).handle}
        return {}


@pytest.fixture
async def deeds(start: Starter, provider: ScriptedProvider) -> Deeds:
    openid = OpenIdSettings.load(issuer=provider.url, client_id="bos")
    # No server listens: the request itself is tested, not its outcome.
    targets = {"gateway": "127.0.0.1:1"}
    made = Deeds(await start(account_data_targets=targets, openid=openid), provider)
    await made.begin()
    return made


OF_PEOPLE = sorted(rpc for rpc in audited("identity") if "ConnectionSecretService" not in rpc)
"""What the gateway does is in test_connections."""


async def standing(dsn: str) -> tuple[str, int, int, int, int, int]:
    """The accounts, and the numbers of good keys and invitations, of sessions, of connections."""
    async with connect(dsn, schema=SCHEMA) as session:
        row = await session.fetchrow(
            "SELECT (SELECT json_agg(u ORDER BY user_id)::text FROM users AS u), "
            "(SELECT count(*) FROM api_keys WHERE revoked_at IS NULL), "
            "(SELECT count(*) FROM invitations WHERE used_by IS NULL), "
            "(SELECT count(*) FROM sessions WHERE is_active), "
            "(SELECT count(*) FROM sessions WHERE NOT is_active), "
            "(SELECT count(*) FROM connections)"
        )
    assert row is not None
    return tuple(row)


@pytest.mark.parametrize("rpc", OF_PEOPLE)
async def test_each_audited_call_is_recorded_or_rolled_back(
    deeds: Deeds, postgres_dsn: str, rpc: str
) -> None:
    users, keys, invitations, present, ended, connected = await standing(postgres_dsn)
    method = rpc.rpartition("/")[2]
    async with refused_entries(postgres_dsn, SCHEMA, AUDITED[rpc]):
        with pytest.raises(BosError):
            await deeds.do(method)
        # What came before it, such as the key that is not revoked now, was done.
        keys += method == "RevokeApiKey"
        invitations += method in ("RevokeInvitation", "RegisterUser")
        present += method in ("LogOut", "RevokeSession")
        connected += method == "DeleteConnection"
        left = (users, keys, invitations, present, ended, connected)
        assert await standing(postgres_dsn) == left
        recorded = await audit_entries(postgres_dsn, SCHEMA, AUDITED[rpc])
        assert [each for each in recorded if each["address"] == ADDRESS] == []

    before = await audit_entries(postgres_dsn, SCHEMA)
    await deeds.do(method)
    entries = (await audit_entries(postgres_dsn, SCHEMA))[len(before) :]
    (entry,) = [each for each in entries if each["action"] == AUDITED[rpc]]
    assert entry["address"] == ADDRESS
    assert entry["actor_kind"] == "user"
    assert UUID(entry["actor"])
    assert entry["target"] == "mail.imap" or UUID(entry["target"])
    assert PLANTED not in json.dumps(entries)
    await sealed_trail(postgres_dsn, SCHEMA)


async def test_actions_of_an_api_key_are_audited_under_key_and_user(
    deeds: Deeds, postgres_dsn: str
) -> None:
    made = await deeds.do("CreateApiKey")
    exchanged = await deeds.identity.call(
        "ExchangeApiKey", contracts.ExchangeApiKeyRequest(api_key=made.secret)
    )
    opened = (await deeds.identity.log_in("ada")).session.session_id
    await deeds.identity.call(
        "RevokeSession", contracts.RevokeSessionRequest(session_id=opened), exchanged.access_token
    )
    (entry,) = await audit_entries(postgres_dsn, SCHEMA, "session.ended")
    assert (entry["actor"], entry["actor_kind"]) == (made.api_key.key_id, "api_key")
    assert entry["details"] == {"user": deeds.ada_id, "reason": "revoked"}
    assert made.secret.split("_", 2)[2] not in json.dumps(await entries_of(postgres_dsn))


async def entries_of(dsn: str) -> list[dict[str, Any]]:
    return await audit_entries(dsn, SCHEMA)


@pytest.mark.security
async def test_failed_logins_are_audited_by_address_without_content(
    deeds: Deeds, postgres_dsn: str
) -> None:
    """People type passwords into the field of their name."""

    async def guess(name: str, times: int) -> None:
        for _ in range(times):
            await refused(deeds.identity.log_in(name, f"{PLANTED} guess", **coming_from(ADDRESS)))

    await guess("ada", 3)
    for number in range(3):
        await guess(f"{PLANTED}{number}", 1)

    async def recorded() -> bool:
        found = await audit_entries(postgres_dsn, SCHEMA, "session.refused")
        return {each["target"] for each in found} == {deeds.ada_id, ""}

    await until(recorded)
    found = await audit_entries(postgres_dsn, SCHEMA, "session.refused")
    for entry in found:
        assert entry["actor"] == ""
        assert entry["actor_kind"] == "anonymous"
        assert entry["outcome"] == "refused"
        assert entry["address"] == ADDRESS
    assert len(found) <= 4, "one row of each in a minute, and what came while it was written"
    assert PLANTED not in json.dumps(found)


async def test_throttled_callers_and_refused_codes_are_audited(
    start: Starter, postgres_dsn: str
) -> None:
    identity = await start(account_attempts=1, registration_open=False)
    for _ in range(2):
        with pytest.raises((Unauthenticated, ResourceExhausted)):
            await identity.log_in("unknown", PLANTED)
    request = contracts.ResetPasswordRequest(code=f"bosp_{PLANTED}", new_password=NEW)
    with pytest.raises(PermissionDenied):
        await identity.call("ResetPassword", request)
    with pytest.raises(PermissionDenied):
        await identity.register("eve", invitation=f"bosi_{PLANTED}")

    async def recorded() -> bool:
        found = {each["action"] for each in await entries_of(postgres_dsn)}
        return found >= {"session.throttled", "password.refused", "account.refused"}

    await until(recorded)
    assert PLANTED not in json.dumps(await entries_of(postgres_dsn))


async def test_refresh_token_reuse_and_too_many_sessions_are_audited(
    start: Starter, postgres_dsn: str
) -> None:
    identity = await start(max_sessions=1, refresh_repeat_s=0)
    await identity.register("ada")
    first = await identity.log_in("ada")
    second = await identity.log_in("ada")
    await identity.refresh(second.tokens.refresh_token)
    await refused(identity.refresh(second.tokens.refresh_token))
    ended = await audit_entries(postgres_dsn, SCHEMA, "session.ended")
    assert [(each["target"], each["details"]["reason"]) for each in ended] == [
        (first.session.session_id, "too_many"),
        (second.session.session_id, "token_reused"),
    ]
    assert [each["actor_kind"] for each in ended] == ["user", "anonymous"]


async def test_keys_and_settings_are_audited_once_without_secrets(
    start: Starter, postgres_dsn: str
) -> None:
    for more in ({}, {}, {"max_sessions": 7}):
        await start(bootstrap_token=f"{PLANTED}-and-long-enough-to-be-used", **more)
    entries = await entries_of(postgres_dsn)
    assert len([each for each in entries if each["action"] == "signing_key.created"]) == 1
    _, second = [each for each in entries if each["action"] == "settings.read"]
    assert "max_sessions" in second["details"]["changed_01"]
    assert PLANTED not in json.dumps(entries)


async def test_reader_role_cannot_audit_in_another_users_name(
    deeds: Deeds, postgres_dsn: str
) -> None:
    insert = "INSERT INTO audit_pending (actor, actor_kind, action, target, outcome, address,"
    insert += " details) VALUES ($1, 'user', 'a.b', '', 'succeeded', '', '{}')"
    async with connect(postgres_dsn, schema=SCHEMA) as session:
        await session.execute("SET ROLE bos_identity_reader")
        await session.execute("SELECT set_config('bos.user_id', $1, false)", deeds.ada_id)
        await session.execute(insert, deeds.ada_id)
        for statement in ("INSERT INTO audit_trail SELECT", "SELECT FROM audit_pending"):
            with pytest.raises(Exception, match="permission denied"):
                await session.execute(statement)
        with pytest.raises(Exception, match="row-level security"):
            await session.execute(insert, "another user")


async def test_claims_of_a_provider_are_audited(
    start: Starter, provider: ScriptedProvider, postgres_dsn: str
) -> None:
    openid = OpenIdSettings.load(issuer=provider.url, client_id="bos", roles_claim="roles")
    deeds = Deeds(await start(openid=openid), provider)
    for roles in (["user", "administrator"], ["user"]):
        provider.person["roles"] = roles
        await deeds.do("FinishOpenIdLogIn")
    (registered,) = await audit_entries(postgres_dsn, SCHEMA, "account.registered")
    assert registered["details"]["right"] == "openid"
    assert registered["details"]["roles"] == "user administrator"
    (changed,) = await audit_entries(postgres_dsn, SCHEMA, "roles.changed")
    assert (changed["actor"], changed["details"]["roles"]) == ("identity", "user")
    assert changed["target"] == registered["actor"]
