"""Audit trail of identity: each action with its entry, or neither; no content."""

import json
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest
from identity_harness import PASSWORD, Caller, Starter, coming_from, until
from scripted_provider import ScriptedProvider

from bos.audit.v1 import ListAuditEntriesRequest
from bos.identity.v1 import (
    BeginOpenIdLogInRequest,
    ChangePasswordRequest,
    CreateApiKeyRequest,
    CreateInvitationRequest,
    CreatePasswordResetRequest,
    CreateServiceAccountRequest,
    DeactivateUserRequest,
    DeleteAccountRequest,
    DeleteConnectionRequest,
    DeleteUserRequest,
    ExchangeApiKeyRequest,
    FinishOpenIdLogInRequest,
    LogInRequest,
    LogOutRequest,
    PutConnectionRequest,
    ReactivateUserRequest,
    RegisterUserRequest,
    ResetPasswordRequest,
    RevokeApiKeyRequest,
    RevokeInvitationRequest,
    RevokeSessionRequest,
    SetUserGroupsRequest,
    SetUserRolesRequest,
)
from bos_errors import BosError, PermissionDenied, ResourceExhausted, Unauthenticated
from bos_identity.openid.settings import OpenIdSettings
from bos_identity.service import SCHEMA
from bos_postgres import connect
from bos_testkit.audit import AUDITED, audit_entries, audited, sealed_trail

ADDRESS = "203.0.113.7"
PLANTED = "planted"
NEW = f"{PLANTED} password, a new one"


class Deeds:
    """An administrator and a user, and everything that they can do, once."""

    def __init__(self, identity: Caller, provider: ScriptedProvider) -> None:
        self.identity = identity
        self.provider = provider
        self.root = ""
        self.ada = ""
        self.ada_id = ""

    async def begin(self) -> None:
        identity = self.identity
        self.root = await identity.administrator()
        self.ada_id = (await identity.invited(self.root, "ada")).user_id
        self.ada = (await identity.log_in("ada")).tokens.access_token
        self.provider.person["name"] = PLANTED
        await self.log_in_by_openid("203.0.113.8")

    async def by_root(self, method: str, request: Any) -> Any:
        return await self.identity.call(method, request, self.root, **coming_from(ADDRESS))

    async def by_ada(self, method: str, request: Any) -> Any:
        return await self.identity.call(method, request, self.ada, **coming_from(ADDRESS))

    async def invite(self) -> Any:
        return await self.by_root("CreateInvitation", CreateInvitationRequest(groups=["sales"]))

    async def revoke_invitation(self) -> None:
        made = (await self.invite()).invitation.invitation_id
        await self.by_root("RevokeInvitation", RevokeInvitationRequest(invitation_id=made))

    async def reset(self) -> None:
        made = await self.by_root(
            "CreatePasswordReset", CreatePasswordResetRequest(user_id=self.ada_id)
        )
        request = ResetPasswordRequest(code=made.code, new_password=NEW)
        await self.identity.call("ResetPassword", request, **coming_from(ADDRESS))

    async def make_key(self) -> Any:
        request = CreateApiKeyRequest(name=PLANTED, scopes=["account"])
        return await self.by_ada("CreateApiKey", request)

    async def revoke_key(self) -> None:
        made = (await self.make_key()).api_key.key_id
        await self.by_ada("RevokeApiKey", RevokeApiKeyRequest(key_id=made))

    async def connect(self) -> None:
        request = PutConnectionRequest(
            kind="mail.imap", label=PLANTED, fields={"host": PLANTED}, secret=PLANTED
        )
        await self.by_ada("PutConnection", request)

    async def disconnect(self) -> None:
        await self.connect()
        await self.by_ada("DeleteConnection", DeleteConnectionRequest(kind="mail.imap"))

    async def log_out(self) -> None:
        opened = await self.identity.log_in("ada")
        request = LogOutRequest(refresh_token=opened.tokens.refresh_token)
        await self.identity.call("LogOut", request, **coming_from(ADDRESS))

    async def revoke_session(self) -> None:
        other = (await self.identity.log_in("ada")).session.session_id
        await self.by_ada("RevokeSession", RevokeSessionRequest(session_id=other))

    async def change_password(self) -> None:
        request = ChangePasswordRequest(current_password=PASSWORD, new_password=NEW)
        await self.by_ada("ChangePassword", request)

    async def delete_account(self) -> None:
        await self.by_ada("DeleteAccount", DeleteAccountRequest(current_password=PASSWORD))

    async def register(self) -> None:
        code = (await self.invite()).code
        request = RegisterUserRequest(
            username=f"{PLANTED}-name",
            email=f"{PLANTED}@example.com",
            display_name=f"{PLANTED} name",
            password=NEW,
            invitation=code,
        )
        await self.identity.call("RegisterUser", request, **coming_from(ADDRESS))

    async def log_in(self) -> None:
        request = LogInRequest(username="ada", password=PASSWORD, client_name=PLANTED)
        await self.identity.call("LogIn", request, **coming_from(ADDRESS))

    async def log_in_by_openid(self, address: str = ADDRESS) -> None:
        there = coming_from(address)
        begun = await self.identity.call("BeginOpenIdLogIn", BeginOpenIdLogInRequest(), **there)
        self.provider.token = [self.provider.granted()]
        request = FinishOpenIdLogInRequest(handle=begun.handle, client_name=PLANTED)
        await self.identity.call("FinishOpenIdLogIn", request, **there)

    def of(self, method: str) -> Callable[[], Awaitable[Any]]:
        user_id = self.ada_id
        admin: dict[str, Any] = {
            "CreateServiceAccount": CreateServiceAccountRequest(username="robot"),
            "SetUserRoles": SetUserRolesRequest(user_id=user_id, roles=["user", "approver"]),
            "SetUserGroups": SetUserGroupsRequest(user_id=user_id, groups=["sales"]),
            "DeactivateUser": DeactivateUserRequest(user_id=user_id),
            "DeleteUser": DeleteUserRequest(user_id=user_id),
            "ReactivateUser": ReactivateUserRequest(user_id=user_id),
        }
        if method in admin:
            return lambda: self.by_root(method, admin[method])
        return {
            "CreateInvitation": self.invite,
            "RevokeInvitation": self.revoke_invitation,
            "CreatePasswordReset": self.reset,
            "ResetPassword": self.reset,
            "CreateApiKey": self.make_key,
            "RevokeApiKey": self.revoke_key,
            "PutConnection": self.connect,
            "DeleteConnection": self.disconnect,
            "LogOut": self.log_out,
            "RevokeSession": self.revoke_session,
            "ChangePassword": self.change_password,
            "DeleteAccount": self.delete_account,
            "RegisterUser": self.register,
            "LogIn": self.log_in,
            "FinishOpenIdLogIn": self.log_in_by_openid,
        }[method]


@pytest.fixture
async def deeds(start: Starter, provider: ScriptedProvider) -> Deeds:
    openid = OpenIdSettings.load(issuer=provider.url, client_id="bos")
    # No server listens: the request itself is tested, not its outcome.
    targets = {"gateway": "127.0.0.1:1"}
    made = Deeds(await start(account_data_targets=targets, openid=openid), provider)
    await made.begin()
    return made


async def run(dsn: str, sql: str) -> None:
    async with connect(dsn, schema=SCHEMA) as session:
        await session.execute(sql)


OF_PEOPLE = sorted(rpc for rpc in audited("identity") if "ConnectionSecretService" not in rpc)
"""What the gateway does is in test_connections."""
REFUSES = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'not now'; END $$;
"""


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
    await run(
        postgres_dsn,
        f"{REFUSES} CREATE TRIGGER refused BEFORE INSERT ON audit_pending FOR EACH ROW "
        f"WHEN (NEW.action = '{AUDITED[rpc]}') EXECUTE FUNCTION refuse()",
    )
    users, keys, invitations, present, ended, connected = await standing(postgres_dsn)
    method = rpc.rpartition("/")[2]
    with pytest.raises(BosError):
        await deeds.of(method)()
    # What came before it, such as the key that is not revoked now, was done.
    keys += method == "RevokeApiKey"
    invitations += method in ("RevokeInvitation", "RegisterUser")
    present += method in ("LogOut", "RevokeSession")
    connected += method == "DeleteConnection"
    left = (users, keys, invitations, present, ended, connected)
    assert await standing(postgres_dsn) == left
    recorded = await audit_entries(postgres_dsn, SCHEMA, AUDITED[rpc])
    assert [each for each in recorded if each["address"] == ADDRESS] == []

    await run(postgres_dsn, "DROP TRIGGER refused ON audit_pending")
    before = await audit_entries(postgres_dsn, SCHEMA)
    await deeds.of(method)()
    entries = (await audit_entries(postgres_dsn, SCHEMA))[len(before) :]
    (entry,) = [each for each in entries if each["action"] == AUDITED[rpc]]
    assert entry["address"] == ADDRESS
    assert entry["actor_kind"] == "user"
    assert UUID(entry["actor"])
    assert entry["target"] == "mail.imap" or UUID(entry["target"])
    assert PLANTED not in json.dumps(entries)
    await sealed_trail(postgres_dsn, SCHEMA)


async def test_rolled_back_change_leaves_no_entry(deeds: Deeds, postgres_dsn: str) -> None:
    await run(
        postgres_dsn,
        f"{REFUSES} CREATE CONSTRAINT TRIGGER undone AFTER UPDATE ON users "
        "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()",
    )
    with pytest.raises(BosError):
        await deeds.of("SetUserRoles")()
    assert await audit_entries(postgres_dsn, SCHEMA, "roles.changed") == []
    await run(postgres_dsn, "DROP TRIGGER undone ON users")
    await deeds.of("SetUserRoles")()
    (entry,) = await audit_entries(postgres_dsn, SCHEMA, "roles.changed")
    assert entry["details"] == {"roles": "user approver", "groups": ""}


async def test_actions_of_an_api_key_are_audited_under_key_and_user(
    deeds: Deeds, postgres_dsn: str
) -> None:
    made = await deeds.make_key()
    exchanged = await deeds.identity.call(
        "ExchangeApiKey", ExchangeApiKeyRequest(api_key=made.secret)
    )
    opened = (await deeds.identity.log_in("ada")).session.session_id
    await deeds.identity.call(
        "RevokeSession", RevokeSessionRequest(session_id=opened), exchanged.access_token
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
            with pytest.raises(Unauthenticated):
                await deeds.identity.log_in(name, f"{PLANTED} guess", **coming_from(ADDRESS))

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
    request = ResetPasswordRequest(code=f"bosp_{PLANTED}", new_password=NEW)
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
    with pytest.raises(Unauthenticated):
        await identity.refresh(second.tokens.refresh_token)
    ended = await audit_entries(postgres_dsn, SCHEMA, "session.ended")
    assert [(each["target"], each["details"]["reason"]) for each in ended] == [
        (first.session.session_id, "too_many"),
        (second.session.session_id, "token_reused"),
    ]
    assert [each["actor_kind"] for each in ended] == ["user", "anonymous"]


async def test_keys_and_settings_are_audited_once_without_secrets(
    start: Starter, postgres_dsn: str
) -> None:
    await start(bootstrap_token=f"{PLANTED}-and-long-enough-to-be-used")
    await start(bootstrap_token=f"{PLANTED}-and-long-enough-to-be-used")
    await start(bootstrap_token=f"{PLANTED}-and-long-enough-to-be-used", max_sessions=7)
    entries = await entries_of(postgres_dsn)
    assert len([each for each in entries if each["action"] == "signing_key.created"]) == 1
    first, second = [each for each in entries if each["action"] == "settings.read"]
    assert first["details"]["digest"] != second["details"]["digest"]
    assert "max_sessions" not in json.dumps(first)
    assert "max_sessions" in second["details"]["changed_01"]
    assert "bootstrap_token" in second["details"]["changed_01"]
    assert PLANTED not in json.dumps(entries)
    async with connect(postgres_dsn, schema=SCHEMA) as session:
        assert await session.fetchval("SELECT session_user") not in json.dumps(entries)


async def test_reader_role_cannot_audit_in_another_users_name(
    deeds: Deeds, postgres_dsn: str
) -> None:
    sql = "INSERT INTO audit_pending (actor, actor_kind, action, target, outcome, address, details)"
    sql += " VALUES ($1, 'user', 'a.b', '', 'succeeded', '', '{}')"
    async with connect(postgres_dsn, schema=SCHEMA) as session:
        await session.execute("SET ROLE bos_identity_reader")
        await session.execute("SELECT set_config('bos.user_id', $1, false)", deeds.ada_id)
        await session.execute(sql, deeds.ada_id)
        for statement in (
            "INSERT INTO audit_trail SELECT",
            "DELETE FROM audit_pending",
            "SELECT FROM audit_pending",
        ):
            with pytest.raises(Exception, match="permission denied"):
                await session.execute(statement)
        with pytest.raises(Exception, match="row-level security"):
            await session.execute(sql, "another user")


async def test_claims_of_a_provider_are_audited(
    start: Starter, provider: ScriptedProvider, postgres_dsn: str
) -> None:
    openid = OpenIdSettings.load(issuer=provider.url, client_id="bos", roles_claim="roles")
    deeds = Deeds(await start(openid=openid), provider)
    for roles in (["user", "administrator"], ["user"]):
        provider.person["roles"] = roles
        await deeds.log_in_by_openid()
    (registered,) = await audit_entries(postgres_dsn, SCHEMA, "account.registered")
    assert registered["details"]["right"] == "openid"
    assert registered["details"]["roles"] == "user administrator"
    (changed,) = await audit_entries(postgres_dsn, SCHEMA, "roles.changed")
    assert (changed["actor"], changed["details"]["roles"]) == ("identity", "user")
    assert changed["target"] == registered["actor"]


async def test_only_present_administrators_read_the_audit_trail(
    identity: Caller, postgres_dsn: str
) -> None:
    root = await identity.administrator()
    ada = (await identity.invited(root, "ada")).user_id
    token = (await identity.log_in("ada")).tokens.access_token
    read = ListAuditEntriesRequest(service=SCHEMA, action="account.registered", actor=ada)
    with pytest.raises(PermissionDenied):
        await identity.call("ListAuditEntries", read, token)
    assert await audit_entries(postgres_dsn, SCHEMA, "audit.read") == []
    await sealed_trail(postgres_dsn, SCHEMA)
    (entry,) = (await identity.call("ListAuditEntries", read, root)).entries
    assert (entry.target, entry.outcome) == (ada, "succeeded")
    # The role counts as it is now, not as the token has it.
    await identity.call(
        "SetUserRoles", SetUserRolesRequest(user_id=ada, roles=["administrator"]), root
    )
    await identity.call("ListAuditEntries", read, token)
