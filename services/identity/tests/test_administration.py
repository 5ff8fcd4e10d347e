"""Roles, groups, closing accounts and new passwords: for administrators, as of this moment."""

import asyncio
from typing import Any

import jwt
import pytest
from identity_harness import PASSWORD, Caller, Starter, refused, sql

from bos_errors import (
    AlreadyExists,
    BosError,
    FailedPrecondition,
    InvalidArgument,
    PermissionDenied,
    ResourceExhausted,
)

UNKNOWN = "00000000-0000-4000-8000-000000000009"
NEW = "another one, longer"


def claims(token: str) -> dict[str, Any]:
    found: dict[str, Any] = jwt.decode(token, options={"verify_signature": False})
    return found


async def test_roles_and_groups_of_the_moment_count(identity: Caller) -> None:
    root = await identity.administrator()
    ada = await identity.invited(root, "ada", roles=["administrator"], groups=["finance"])
    login = await identity.log_in("ada")
    old = login.tokens.access_token
    await identity.do("ListUsers", old)
    found = await identity.do("CheckSession", old)
    assert (found.open, list(found.roles)) == (True, ["administrator"])
    await identity.do("SetUserRoles", root, user_id=ada.user_id, roles=["user", "approver"])
    await identity.do("SetUserGroups", root, user_id=ada.user_id, groups=["hr", "it"])
    assert claims(old)["roles"] == ["administrator"], "as it was signed"
    with pytest.raises(PermissionDenied):
        await identity.do("ListUsers", old)
    found = await identity.do("CheckSession", old)
    assert (set(found.roles), list(found.groups)) == ({"user", "approver"}, ["hr", "it"])
    tokens = await identity.refresh(login.tokens.refresh_token)
    after, me = claims(tokens.access_token), await identity.me(tokens.access_token)
    for roles, groups in ((after["roles"], after["groups"]), (me.roles, me.groups)):
        assert (list(roles), list(groups)) == (["user", "approver"], ["hr", "it"])


@pytest.mark.parametrize(
    ("method", "fields"),
    [
        ("SetUserRoles", {"user_id": UNKNOWN, "roles": ["root"]}),
        ("SetUserGroups", {"user_id": UNKNOWN, "groups": ["a b"]}),
        ("SetUserGroups", {"user_id": UNKNOWN, "groups": [f"g{n}" for n in range(33)]}),
        ("CreateServiceAccount", {"username": "r2", "roles": ["administrator"]}),
        ("CreateServiceAccount", {"username": "local"}),
    ],
)
async def test_invalid_roles_and_groups_are_refused(
    identity: Caller, method: str, fields: dict[str, Any]
) -> None:
    root = await identity.administrator()
    with pytest.raises(InvalidArgument):
        await identity.do(method, root, **fields)


@pytest.mark.parametrize("method", ["SetUserRoles", "DeactivateUser"])
async def test_the_last_administrator_stays_one(identity: Caller, method: str) -> None:
    root = await identity.administrator()
    me = await identity.me(root)
    # None of these can sign in and administer.
    idle = await identity.invited(root, "idle", roles=["administrator"])
    await identity.do("DeactivateUser", root, user_id=idle.user_id)
    with pytest.raises(FailedPrecondition) as error:
        await identity.do(method, root, user_id=me.user_id)
    assert error.value.reason == "LAST_ADMINISTRATOR"
    await identity.do("ReactivateUser", root, user_id=idle.user_id)
    await identity.do(method, root, user_id=me.user_id)
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
            works.append(caller.do("SetUserRoles", token, user_id=user_id))
        else:
            works.append(caller.do("DeactivateUser", token, user_id=user_id))
    answers = await asyncio.gather(*works, return_exceptions=True)
    assert all(not isinstance(a, Exception) or isinstance(a, BosError) for a in answers)
    left = await sql(
        postgres_dsn,
        "SELECT count(*) FROM users WHERE 'administrator' = ANY(roles) AND deactivated_at IS NULL",
    )
    assert left >= 1


async def test_deactivation_takes_effect_at_once(identity: Caller) -> None:
    root = await identity.administrator()
    ada = await identity.invited(root, "ada")
    tokens = (await identity.log_in("ada")).tokens
    closed = await identity.do("DeactivateUser", root, user_id=ada.user_id)
    assert not closed.user.active
    await refused(identity.me(tokens.access_token))
    await refused(identity.refresh(tokens.refresh_token))
    ended = await identity.do("CheckSession", tokens.access_token)
    assert (ended.open, list(ended.roles), list(ended.groups)) == (False, [], [])
    await refused(identity.do("CheckSession"))
    with pytest.raises(PermissionDenied) as error:
        await identity.log_in("ada")
    assert error.value.reason == "USER_DEACTIVATED"
    await refused(identity.log_in("ada", "wrong"))  # who does not know the password hears nothing
    await identity.do("ReactivateUser", root, user_id=ada.user_id)
    await refused(identity.refresh(tokens.refresh_token))
    assert (await identity.log_in("ada")).user.active


async def test_accounts_are_listed_by_name_page_by_page(identity: Caller) -> None:
    root = await identity.administrator()
    for name in ("Carl", "ada", "bob"):
        await identity.invited(root, name)
    names, token = [], ""
    while True:
        page = await identity.do("ListUsers", root, page_size=2, page_token=token)
        assert len(page.users) <= 2
        names += [user.username for user in page.users]
        token = page.next_page_token
        if not token:
            break
    assert names == ["ada", "bob", "Carl", "root"]
    found = await identity.do("ListUsers", root, username="CARL")
    assert [user.username for user in found.users] == ["Carl"]
    for odd in ("AA", "éé"):
        with pytest.raises(InvalidArgument):
            await identity.do("ListUsers", root, page_token=odd)


async def test_service_account_has_no_password_nor_admin_role(identity: Caller) -> None:
    root = await identity.administrator()
    fields = {"username": "robot", "groups": ["finance"]}
    robot = (await identity.do("CreateServiceAccount", root, **fields)).user
    assert (robot.service_account, list(robot.roles)) == (True, ["user"])
    with pytest.raises(AlreadyExists):
        await identity.do("CreateServiceAccount", root, **fields)
    await identity.do("CreateServiceAccount", root, username="r2")
    for name in ("robot", ""):
        with pytest.raises(BosError):
            await identity.log_in(name)
    with pytest.raises(InvalidArgument):
        await identity.do("SetUserRoles", root, user_id=robot.user_id, roles=["administrator"])
    with pytest.raises(FailedPrecondition):
        await identity.do("CreatePasswordReset", root, user_id=robot.user_id)


async def test_reset_code_works_once_and_ends_all_sessions(
    identity: Caller, postgres_dsn: str
) -> None:
    root = await identity.administrator()
    ada = await identity.invited(root, "ada")
    login = await identity.log_in("ada")

    async def code() -> str:
        return str((await identity.do("CreatePasswordReset", root, user_id=ada.user_id)).code)

    async def reset(code: str, password: str = NEW) -> Any:
        return await identity.do("ResetPassword", code=code, new_password=password)

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
        await refused(gone)
    assert await identity.log_in("ada", NEW)
    late = await code()
    await sql(postgres_dsn, "UPDATE password_resets SET expires_at = now()")
    with pytest.raises(PermissionDenied):
        await reset(late)


async def test_of_many_who_use_one_code_at_once_one_sets_the_password(identity: Caller) -> None:
    root = await identity.administrator()
    ada = await identity.invited(root, "ada")
    code = (await identity.do("CreatePasswordReset", root, user_id=ada.user_id)).code
    passwords = [f"a new passphrase no. {number}" for number in range(10)]
    answers = await asyncio.gather(
        *(identity.do("ResetPassword", code=code, new_password=password) for password in passwords),
        return_exceptions=True,
    )
    (winner,) = [p for p, a in zip(passwords, answers, strict=True) if not isinstance(a, Exception)]
    assert await identity.log_in("ada", winner)


async def test_password_reset_by_code_ends_the_throttling(start: Starter) -> None:
    identity = await start(account_attempts_anywhere=2, throttle_first_s=20.0, address_attempts=99)
    root = await identity.administrator()
    ada = await identity.invited(root, "ada")
    for _ in range(2):
        await refused(identity.log_in("ada", "wrong"))
    with pytest.raises(ResourceExhausted):
        await identity.log_in("ada")
    code = (await identity.do("CreatePasswordReset", root, user_id=ada.user_id)).code
    await identity.do("ResetPassword", code=code, new_password=NEW)
    assert await identity.log_in("ada", NEW)
