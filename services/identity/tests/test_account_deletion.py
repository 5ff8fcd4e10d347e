"""Accounts are deleted with all data in services, despite outages, kills and repetitions."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from identity_harness import KEY, REST, Caller, Starter, refused, until

from bos.account.v1 import (
    AccountDataServiceServicer,
    EraseAccountDataResponse,
    ExportAccountDataResponse,
    add_AccountDataServiceServicer_to_server,
)
from bos_chassis.auth.account_data import ERASE, HOLDERS, SERVICE_NAME, account_to
from bos_chassis.auth.callers import AUTHORIZATION_KEY
from bos_chassis.auth.user_tokens import open_authenticator
from bos_chassis.server import Servicer, grpc_server
from bos_chassis.settings import AuthSettings, ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_errors import (
    AlreadyExists,
    BosError,
    FailedPrecondition,
    NotFound,
    PermissionDenied,
    Unavailable,
)
from bos_identity.accounts import LOCAL_USER_ID
from bos_identity.deletion.data_services import unnamed
from bos_postgres import connect
from bos_testkit.waiting import eventually


@dataclass
class Holder(AccountDataServiceServicer):
    """A service that holds things of users, and deletes one at each call."""

    held: dict[str, int] = field(default_factory=dict)
    problem: BosError | None = None
    calls: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    stuck: asyncio.Event | None = None

    async def EraseAccountData(self, request: Any, context: Any) -> EraseAccountDataResponse:
        user_id = account_to(ERASE)
        self.calls.append(user_id)
        metadata = dict(context.invocation_metadata() or ())
        self.tokens.append(str(metadata[AUTHORIZATION_KEY]).removeprefix("Bearer "))
        if self.problem is not None:
            raise self.problem
        if self.stuck is not None:
            await self.stuck.wait()
        left = self.held.get(user_id, 0)
        self.held[user_id] = max(0, left - 1)
        return EraseAccountDataResponse(done=left <= 1, erased={"things": min(1, left)})

    async def ExportAccountData(
        self, request: Any, context: Any
    ) -> AsyncIterator[ExportAccountDataResponse]:
        yield ExportAccountDataResponse(path="things.txt", content=b"things")


@dataclass
class Harness:
    """Identity, and one service that holds data of accounts."""

    identity: Caller
    holder: Holder
    target: str
    root: str
    """The administrator's access token."""
    dsn: str

    async def sql(self, statement: str, *arguments: object) -> Any:
        async with connect(self.dsn) as connection:
            return await connection.fetchval(statement, *arguments)

    async def delete(self, user_id: str) -> Any:
        return await self.identity.do("DeleteUser", self.root, user_id=user_id)

    async def erased(self) -> bool:
        return bool(await self.sql("SELECT erased_at FROM identity.account_deletions"))

    async def tokens_expire(self) -> None:
        """As if the last access token of all that are being deleted had expired."""
        await self.sql("UPDATE identity.account_deletions SET ends_at = now(), next_at = now()")

    async def none_left(self) -> bool:
        return await self.sql("SELECT count(*) FROM identity.account_deletions") == 0


@pytest.fixture
async def harness(start: Starter) -> Harness:
    holder, targets = Holder(), dict[str, str]()
    identity = await start(account_data_targets=targets)
    targets["things"] = target = await _served(start, holder, identity.address)
    # The settings hold a copy.
    second = await start(account_data_targets=targets)
    return Harness(second, holder, target, await second.administrator(), start.dsn)


async def _served(start: Starter, holder: Holder, identity: str, port: int = 0) -> str:
    enter, telemetry = start.stack.enter_async_context, Telemetry.for_tests("things")
    auth = await enter(
        open_authenticator(
            AuthSettings.load(issuer="bos-identity", identity_target=identity), None, telemetry
        )
    )
    served = Servicer(holder, add_AccountDataServiceServicer_to_server, SERVICE_NAME)
    server = ServerSettings.load(grace_s=0.1, port=port)
    return (await enter(grpc_server(server, [served], telemetry=telemetry, auth=auth))).address


async def test_account_is_removed_after_data_and_token_expiry(harness: Harness) -> None:
    ada = await harness.identity.invited(harness.root, "ada")
    harness.holder.held[ada.user_id] = 5
    deletion = await harness.delete(ada.user_id)
    assert not deletion.HasField("erase_time")
    assert deletion.earliest_end_time.ToSeconds() - deletion.request_time.ToSeconds() >= 600
    await until(harness.erased)
    assert harness.holder.held[ada.user_id] == 0
    with pytest.raises(AlreadyExists):
        await harness.identity.invited(harness.root, "ada")  # the name is taken until it is over
    harness.holder.held[ada.user_id] = 2  # came late
    await harness.tokens_expire()
    await until(harness.none_left)
    assert harness.holder.held[ada.user_id] == 0
    with pytest.raises(NotFound):
        await harness.delete(ada.user_id)
    again = await harness.identity.invited(harness.root, "ada")
    assert again.user_id != ada.user_id


async def test_an_account_being_deleted_cannot_be_used_or_restored(harness: Harness) -> None:
    ada = await harness.identity.invited(harness.root, "ada")
    opened = await harness.identity.log_in("ada")
    key = await harness.identity.do(
        "CreateApiKey", opened.tokens.access_token, name="k", scopes=["account"]
    )
    harness.holder.stuck = asyncio.Event()
    await harness.delete(ada.user_id)
    await refused(harness.identity.log_in("ada"))
    await refused(harness.identity.refresh(opened.tokens.refresh_token))
    await refused(harness.identity.me(opened.tokens.access_token))
    await refused(harness.identity.do("ExchangeApiKey", api_key=key.secret))
    with pytest.raises(FailedPrecondition) as error:
        await harness.identity.do("ReactivateUser", harness.root, user_id=ada.user_id)
    assert error.value.reason == "USER_DELETING"
    for method, rights in (
        ("SetUserRoles", {"roles": ["administrator"]}),
        ("SetUserGroups", {"groups": ["crew"]}),
    ):
        with pytest.raises(NotFound):
            await harness.identity.do(method, harness.root, user_id=ada.user_id, **rights)
    with pytest.raises(BosError):
        await harness.identity.do("CreatePasswordReset", harness.root, user_id=ada.user_id)
    found = await harness.identity.do("ListUsers", harness.root, username="ada")
    assert [(user.deleting, user.active, user.email) for user in found.users] == [(True, False, "")]
    harness.holder.stuck.set()


async def test_deletion_waits_for_unavailable_services(harness: Harness) -> None:
    ada = await harness.identity.invited(harness.root, "ada")
    harness.holder.held[ada.user_id] = 1
    harness.holder.problem = Unavailable("The store is away.")
    await harness.delete(ada.user_id)

    async def reported() -> bool:
        return (await harness.delete(ada.user_id)).waiting_for == "things: UNAVAILABLE"

    await until(reported)

    def is_seen() -> bool:
        return harness.identity.metric("bos_identity_account_deletions") == 1

    await eventually(is_seen)
    harness.holder.problem = None
    await harness.sql("UPDATE identity.account_deletions SET next_at = now()")
    await until(harness.erased)
    assert (await harness.delete(ada.user_id)).waiting_for == ""


async def test_the_last_administrator_and_the_local_user_stay(harness: Harness) -> None:
    root = await harness.identity.me(harness.root)
    with pytest.raises(FailedPrecondition) as error:
        await harness.delete(root.user_id)
    assert error.value.reason == "LAST_ADMINISTRATOR"
    with pytest.raises(FailedPrecondition) as error:
        await harness.delete(str(LOCAL_USER_ID))
    assert error.value.reason == "LOCAL_USER"
    assert (await harness.identity.log_in("root")).user.user_id == root.user_id
    await harness.identity.invited(harness.root, "ada", roles=["user", "administrator"])
    await harness.delete(root.user_id)
    await until(harness.erased)


async def test_the_token_for_a_users_data_opens_nothing_else(harness: Harness) -> None:
    ada = await harness.identity.invited(harness.root, "ada")
    await harness.delete(ada.user_id)
    await until(harness.erased)
    (token, *_) = harness.holder.tokens
    for method in ("GetUser", "ListSessions", "DeleteAccount", "ListUsers", "ListApiKeys"):
        fields = {"current_password": "x"} if method == "DeleteAccount" else {}
        with pytest.raises(PermissionDenied):
            await harness.identity.do(method, token, **fields)


async def test_deletion_needs_configured_data_services(start: Starter) -> None:
    identity = await start()
    root = await identity.administrator()
    ada = await identity.invited(root, "ada")
    with pytest.raises(FailedPrecondition) as error:
        await identity.do("DeleteUser", root, user_id=ada.user_id)
    assert error.value.reason == "DATA_SERVICES_UNKNOWN"
    assert (await identity.log_in("ada")).user.user_id == ada.user_id
    named = {"gateway": "127.0.0.1:1", "memory": "127.0.0.1:1"}
    assert unnamed(named) == ["documents", "files"]
    assert unnamed(dict.fromkeys((*HOLDERS, "things"), "127.0.0.1:1")) == []


async def test_a_deletion_goes_on_where_a_killed_replica_left_it(start: Starter) -> None:
    stuck = asyncio.Event()
    holder, targets = Holder(stuck=stuck), dict[str, str]()
    keys = await start()  # for its public keys alone
    targets["things"] = target = await _served(start, holder, keys.address)
    root = await keys.administrator()
    ada = await keys.invited(root, "ada")
    holder.held[ada.user_id] = 3
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "BOS_IDENTITY_STORE_URL": start.dsn,
        "BOS_IDENTITY_KEY_ENCRYPTION_KEYS": KEY,
        "BOS_IDENTITY_ACCOUNT_DATA_TARGETS": f'{{"things": "{target}"}}',
        "BOS_AUTH_PROXY_PUBLIC_KEYS": REST.public_key,
        "BOS_SERVER_HOST": "127.0.0.1",
        "BOS_SERVER_PORT": "0",
    }
    doomed = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bos_identity", env=environment
    )
    try:
        # As the administrator's call would have: this replica knows of no services.
        await _begin(start.dsn, ada.user_id)
        await eventually(lambda: bool(holder.calls))
    finally:
        doomed.send_signal(signal.SIGKILL)
        await doomed.wait()
    stuck.set()
    heir = await start(account_data_targets=targets)
    harness = Harness(heir, holder, target, root, start.dsn)
    # Its minute is over.
    await harness.sql("UPDATE identity.account_deletions SET next_at = now()")
    await until(harness.erased)
    await harness.tokens_expire()
    await until(harness.none_left)
    assert await harness.sql("SELECT count(*) FROM identity.users WHERE username = 'ada'") == 0


async def _begin(dsn: str, user_id: str) -> None:
    async with connect(dsn) as connection, connection.transaction():
        await connection.execute(
            "UPDATE identity.users SET deleting = true, deactivated_at = now() "
            "WHERE user_id = $1::uuid",
            user_id,
        )
        await connection.execute(
            "INSERT INTO identity.account_deletions (user_id, ends_at) "
            "VALUES ($1::uuid, now() + interval '1 hour')",
            user_id,
        )
