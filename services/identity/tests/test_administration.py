"""Roles, groups, closing accounts and new passwords: for administrators, as of this moment."""

import asyncio
from typing import Any

import jwt
import pytest
from identity_harness import PASSWORD, Caller, Starter

from bos.identity.v1 import (
    CheckSessionRequest,
    CreateInvitationRequest,
    CreatePasswordResetRequest,
    CreateServiceAccountRequest,
    DeactivateUserRequest,
    ListInvitationsRequest,
    ListUsersRequest,
    ReactivateUserRequest,
    ResetPasswordRequest,
    RevokeInvitationRequest,
    SetUserGroupsRequest,
    SetUserRolesRequest,
)
from bos_errors import (
    AlreadyExists,
    BosError,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
)
from bos_postgres import connect

UNKNOWN = "00000000-0000-4000-8000-000000000009"
NEW = "another one, longer"
ALL = {
    "ListUsers": ListUsersRequest(),
    "CreateServiceAccount": CreateServiceAccountRequest(username="robot"),
    "SetUserRoles": SetUserRolesRequest(user_id=UNKNOWN),
    "SetUserGroups": SetUserGroupsRequest(user_id=UNKNOWN),
    "DeactivateUser": DeactivateUserRequest(user_id=UNKNOWN),
    "ReactivateUser": ReactivateUserRequest(user_id=UNKNOWN),
    "CreatePasswordReset": CreatePasswordResetRequest(user_id=UNKNOWN),
    "CreateInvitation": CreateInvitationRequest(),
    "ListInvitations": ListInvitationsRequest(),
    "RevokeInvitation": RevokeInvitationRequest(invitation_id=UNKNOWN),
}


def claims(token: str) -> dict[str, Any]:
    found: dict[str, Any] = jwt.decode(token, options={"verify_signature": False})
    return found


async def test_only_administrators_may_administer(identity: Caller) -> None:
    root = await identity.administrator()
    await identity.invited(root, "eve", roles=["user", "approver", "operator"])
    eve = (await identity.log_in("eve")).tokens.access_token
    for method, request in ALL.items():
        with pytest.raises(PermissionDenied) as error:
            await identity.call(method, request, eve)
        assert error.value.reason == "ROLE_REQUIRED", method
        try:
            await identity.call(method, request, root)
        except NotFound:
            assert UNKNOWN in str(request), method


async def test_removed_role_in_a_token_does_not_administer(
    identity: Caller,
) -> None:
    root = await identity.administrator()
    ada = await identity.invited(root, "ada", roles=["user", "administrator"])
    hers = (await identity.log_in("ada")).tokens.access_token
    await identity.call("ListUsers", ListUsersRequest(), hers)
    await identity.call("SetUserRoles", SetUserRolesRequest(user_id=ada.user_id), root)
    assert "administrator" in claims(hers)["roles"]
    with pytest.raises(PermissionDenied):
        await identity.call("ListUsers", ListUsersRequest(), hers)


async def test_new_tokens_carry_the_roles_and_groups_of_the_moment(identity: Caller) -> None:
    root = await identity.administrator()
    ada = await identity.invited(root, "ada", groups=["finance"])
    login = await identity.log_in("ada")
    await identity.call(
        "SetUserRoles", SetUserRolesRequest(user_id=ada.user_id, roles=["user", "approver"]), root
    )
    await identity.call(
        "SetUserGroups", SetUserGroupsRequest(user_id=ada.user_id, groups=["hr", "it"]), root
    )
    before = claims(login.tokens.access_token)
    assert (before["roles"], before["groups"]) == (["user"], ["finance"])
    tokens = await identity.refresh(login.tokens.refresh_token)
    after = claims(tokens.access_token)
    assert (after["roles"], after["groups"]) == (["user", "approver"], ["hr", "it"])
    me = await identity.me(tokens.access_token)
    assert (list(me.roles), list(me.groups)) == (["user", "approver"], ["hr", "it"])


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("SetUserRoles", SetUserRolesRequest(user_id=UNKNOWN, roles=["root"])),
        ("SetUserGroups", SetUserGroupsRequest(user_id=UNKNOWN, groups=["a b"])),
        (
            "SetUserGroups",
            SetUserGroupsRequest(user_id=UNKNOWN, groups=[f"g{n}" for n in range(33)]),
        ),
        (
            "CreateServiceAccount",
            CreateServiceAccountRequest(username="r2", roles=["administrator"]),
        ),
        ("CreateServiceAccount", CreateServiceAccountRequest(username="local")),
    ],
)
async def test_invalid_roles_and_groups_are_refused(
    identity: Caller, method: str, request_: Any
) -> None:
    root = await identity.administrator()
    with pytest.raises(InvalidArgument):
        await identity.call(method, request_, root)


@pytest.mark.parametrize(
    ("method", "request_type"),
    [("SetUserRoles", SetUserRolesRequest), ("DeactivateUser", DeactivateUserRequest)],
)
async def test_the_last_administrator_stays_one(
    identity: Caller, method: str, request_type: Any
) -> None:
    root = await identity.administrator()
    me = await identity.me(root)
    # None of these can sign in and administer.
    idle = await identity.invited(root, "idle", roles=["administrator"])
    await identity.call("DeactivateUser", DeactivateUserRequest(user_id=idle.user_id), root)
    with pytest.raises(FailedPrecondition) as error:
        await identity.call(method, request_type(user_id=me.user_id), root)
    assert error.value.reason == "LAST_ADMINISTRATOR"
    await identity.call("ReactivateUser", ReactivateUserRequest(user_id=idle.user_id), root)
    await identity.call(method, request_type(user_id=me.user_id), root)
    assert (await identity.log_in("idle")).user.active


async def test_concurrent_demotions_leave_one_administrator(
    start: Starter, postgres_dsn: str
) -> None:
    replicas = [await start(), await start()]
    root = await replicas[0].administrator()
    people = [(await replicas[0].me(root)).user_id]
    tokens = [root]
    for number in range(5):
        user = await replicas[0].invited(root, f"admin{number}", roles=["administrator"])
        people.append(user.user_id)
        tokens.append((await replicas[0].log_in(f"admin{number}")).tokens.access_token)
    works = []
    for number, user_id in enumerate(people):
        caller, token = replicas[number % 2], tokens[(number + 1) % len(tokens)]
        if number % 3:
            works.append(caller.call("SetUserRoles", SetUserRolesRequest(user_id=user_id), token))
        else:
            request = DeactivateUserRequest(user_id=user_id)
            works.append(caller.call("DeactivateUser", request, token))
    answers = await asyncio.gather(*works, return_exceptions=True)
    assert all(not isinstance(a, Exception) or isinstance(a, BosError) for a in answers)
    async with connect(postgres_dsn, schema="identity") as connection:
        left = await connection.fetchval(
            "SELECT count(*) FROM users WHERE 'administrator' = ANY(roles) "
            "AND deactivated_at IS NULL"
        )
    assert left >= 1


async def test_deactivation_takes_effect_at_once(
    identity: Caller,
) -> None:
    root = await identity.administrator()
    ada = await identity.invited(root, "ada")
    login = await identity.log_in("ada")
    closed = await identity.call("DeactivateUser", DeactivateUserRequest(user_id=ada.user_id), root)
    assert not closed.user.active
    with pytest.raises(Unauthenticated):
        await identity.me(login.tokens.access_token)
    with pytest.raises(Unauthenticated):
        await identity.refresh(login.tokens.refresh_token)
    with pytest.raises(PermissionDenied) as error:
        await identity.log_in("ada")
    assert error.value.reason == "USER_DEACTIVATED"
    with pytest.raises(Unauthenticated):
        await identity.log_in("ada", "wrong")  # who does not know the password hears nothing
    await identity.call("ReactivateUser", ReactivateUserRequest(user_id=ada.user_id), root)
    with pytest.raises(Unauthenticated):
        await identity.refresh(login.tokens.refresh_token)
    assert (await identity.log_in("ada")).user.active


async def test_a_login_while_the_account_is_closed_opens_no_session(
    identity: Caller, postgres_dsn: str
) -> None:
    await identity.register()
    async with (
        connect(postgres_dsn, schema="identity") as connection,
        connect(postgres_dsn) as watcher,
    ):
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("UPDATE users SET deactivated_at = now()")
        login = asyncio.create_task(identity.log_in())
        while not await watcher.fetchval(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE datname = current_database() AND wait_event_type = 'Lock'"
        ):
            pass
        await transaction.commit()
        with pytest.raises(Unauthenticated):
            await login
        assert await connection.fetchval("SELECT count(*) FROM sessions") == 0


async def test_accounts_are_listed_by_name_page_by_page(identity: Caller) -> None:
    root = await identity.administrator()
    for name in ("Carl", "ada", "bob"):
        await identity.invited(root, name)
    names, token = [], ""
    while True:
        page = await identity.call(
            "ListUsers", ListUsersRequest(page_size=2, page_token=token), root
        )
        assert len(page.users) <= 2
        names += [user.username for user in page.users]
        token = page.next_page_token
        if not token:
            break
    assert names == ["ada", "bob", "Carl", "root"]
    found = await identity.call("ListUsers", ListUsersRequest(username="CARL"), root)
    assert [user.username for user in found.users] == ["Carl"]
    for odd in ("AA", "éé"):
        with pytest.raises(InvalidArgument):
            await identity.call("ListUsers", ListUsersRequest(page_token=odd), root)


async def test_service_account_has_no_password_nor_admin_role(
    identity: Caller,
) -> None:
    root = await identity.administrator()
    request = CreateServiceAccountRequest(username="robot", groups=["finance"])
    robot = (await identity.call("CreateServiceAccount", request, root)).user
    assert (robot.service_account, list(robot.roles)) == (True, ["user"])
    with pytest.raises(AlreadyExists):
        await identity.call("CreateServiceAccount", request, root)
    await identity.call("CreateServiceAccount", CreateServiceAccountRequest(username="r2"), root)
    for name in ("robot", ""):
        with pytest.raises(BosError):
            await identity.log_in(name)
    with pytest.raises(InvalidArgument):
        await identity.call(
            "SetUserRoles",
            SetUserRolesRequest(user_id=robot.user_id, roles=["administrator"]),
            root,
        )
    with pytest.raises(FailedPrecondition):
        await identity.call(
            "CreatePasswordReset", CreatePasswordResetRequest(user_id=robot.user_id), root
        )


async def test_reset_code_works_once_and_ends_all_sessions(
    identity: Caller, postgres_dsn: str
) -> None:
    root = await identity.administrator()
    ada = await identity.invited(root, "ada")
    login = await identity.log_in("ada")

    async def code() -> str:
        request = CreatePasswordResetRequest(user_id=ada.user_id)
        return str((await identity.call("CreatePasswordReset", request, root)).code)

    async def reset(code: str, password: str = NEW) -> Any:
        return await identity.call(
            "ResetPassword", ResetPasswordRequest(code=code, new_password=password)
        )

    void, good = await code(), await code()
    for wrong in (void, "bosp_made-up"):
        with pytest.raises(PermissionDenied) as error:
            await reset(wrong)
        assert error.value.reason == "RESET_CODE_INVALID"
    with pytest.raises(InvalidArgument):
        await reset(good, "short")
    assert (await reset(good)).username == "ada"
    with pytest.raises(PermissionDenied):
        await reset(good, "yet another one, longer")
    for gone in (identity.refresh(login.tokens.refresh_token), identity.log_in("ada", PASSWORD)):
        with pytest.raises(Unauthenticated):
            await gone
    assert await identity.log_in("ada", NEW)
    late = await code()
    async with connect(postgres_dsn, schema="identity") as connection:
        await connection.execute("UPDATE password_resets SET expires_at = now()")
    with pytest.raises(PermissionDenied):
        await reset(late)


async def test_of_many_who_use_one_code_at_once_one_sets_the_password(identity: Caller) -> None:
    root = await identity.administrator()
    ada = await identity.invited(root, "ada")
    request = CreatePasswordResetRequest(user_id=ada.user_id)
    code = (await identity.call("CreatePasswordReset", request, root)).code
    passwords = [f"a new passphrase no. {number}" for number in range(10)]
    answers = await asyncio.gather(
        *(
            identity.call("ResetPassword", ResetPasswordRequest(code=code, new_password=password))
            for password in passwords
        ),
        return_exceptions=True,
    )
    (winner,) = [p for p, a in zip(passwords, answers, strict=True) if not isinstance(a, Exception)]
    assert await identity.log_in("ada", winner)


async def test_password_reset_by_code_ends_the_throttling(
    start: Starter,
) -> None:
    identity = await start(account_attempts_anywhere=2, throttle_first_s=20.0, address_attempts=99)
    root = await identity.administrator()
    ada = await identity.invited(root, "ada")
    for _ in range(2):
        with pytest.raises(Unauthenticated):
            await identity.log_in("ada", "wrong")
    with pytest.raises(ResourceExhausted):
        await identity.log_in("ada")
    request = CreatePasswordResetRequest(user_id=ada.user_id)
    code = (await identity.call("CreatePasswordReset", request, root)).code
    await identity.call("ResetPassword", ResetPasswordRequest(code=code, new_password=NEW))
    assert await identity.log_in("ada", NEW)


async def test_a_session_is_known_to_be_open_until_the_moment_it_ends(identity: Caller) -> None:
    root = await identity.administrator()
    ada = await identity.invited(root, "ada", roles=["user", "approver"], groups=["finance"])
    token = (await identity.log_in("ada")).tokens.access_token

    async def check() -> Any:
        return await identity.call("CheckSession", CheckSessionRequest(), token)

    found = await check()
    assert (found.open, list(found.roles), list(found.groups)) == (
        True,
        ["approver", "user"],
        ["finance"],
    )
    await identity.call(
        "SetUserRoles", SetUserRolesRequest(user_id=ada.user_id, roles=["user"]), root
    )
    assert list((await check()).roles) == ["user"]
    await identity.call("DeactivateUser", DeactivateUserRequest(user_id=ada.user_id), root)
    ended = await check()
    assert (ended.open, list(ended.roles), list(ended.groups)) == (False, [], [])
    with pytest.raises(Unauthenticated):
        await identity.call("CheckSession", CheckSessionRequest())
