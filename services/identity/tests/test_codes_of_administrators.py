"""Codes that an administrator has handed out end with the right to make them."""

import asyncio
from typing import Any

import pytest
from identity_harness import Caller, locked, sql

from bos_errors import PermissionDenied

MAKING = ("CreateInvitation", "CreatePasswordReset")


async def harness(identity: Caller) -> tuple[str, str, str]:
    """Two administrators and their tokens: the first one's, then id and token of the other."""
    root = await identity.administrator()
    eve = await identity.invited(root, "eve", roles=["user", "administrator"])
    return root, eve.user_id, (await identity.log_in("eve")).tokens.access_token


async def make(identity: Caller, method: str, token: str, user_id: str) -> str:
    """The code of an invitation of an administrator, or of a password reset of another user."""
    of_user = {"user_id": user_id}
    fields = {"roles": ["administrator"]} if method == "CreateInvitation" else of_user
    return str((await identity.do(method, token, **fields)).code)


async def used(identity: Caller, username: str, invitation: str, reset: str) -> list[str]:
    """How the use of both codes ends: a name, or the reason of the refusal."""
    ended = []
    for use in (
        identity.register(username, invitation=invitation),
        identity.do("ResetPassword", code=reset, new_password="another one, longer"),
    ):
        try:
            ended.append((await use).username)
        except PermissionDenied as error:
            ended.append(error.reason)
    return ended


VOID = ["INVITATION_INVALID", "RESET_CODE_INVALID"]


@pytest.mark.parametrize(
    ("method", "fields", "ended"),
    [
        ("SetUserRoles", {"roles": ["user"]}, VOID),
        ("DeactivateUser", {}, VOID),
        ("SetUserRoles", {"roles": ["administrator", "operator"]}, ["gus", "carl"]),
    ],
)
async def test_codes_of_a_former_administrator_are_void(
    identity: Caller, method: str, fields: dict[str, Any], ended: list[str]
) -> None:
    root, eve, hers = await harness(identity)
    carl = (await identity.invited(root, "carl")).user_id
    dora = (await identity.invited(root, "dora")).user_id
    her_codes = [await make(identity, each, hers, carl) for each in MAKING]
    own_codes = [await make(identity, each, root, dora) for each in MAKING]
    await identity.do(method, root, user_id=eve, **fields)
    assert await used(identity, "gus", *her_codes) == ended
    assert await used(identity, "fay", *own_codes) == ["fay", "dora"], "as good as before"


@pytest.mark.parametrize("making", MAKING)
async def test_a_code_is_not_made_while_the_right_to_it_is_taken_away(
    identity: Caller, postgres_dsn: str, making: str
) -> None:
    root, eve, hers = await harness(identity)
    carl = (await identity.invited(root, "carl")).user_id
    take = f"UPDATE users SET roles = '{{user}}' WHERE user_id = '{eve}'"
    async with locked(postgres_dsn, take) as right:
        begun = asyncio.create_task(make(identity, making, hers, carl))
        await right.until_waiting()
        await right.transaction.commit()
        with pytest.raises(PermissionDenied) as refused:
            await begun
    assert refused.value.reason == "ROLE_REQUIRED"
    made = "(SELECT count(*) FROM invitations WHERE used_by IS NULL)"
    assert await sql(postgres_dsn, f"SELECT {made} + (SELECT count(*) FROM password_resets)") == 0


async def test_mutual_reset_codes_do_not_deadlock(identity: Caller) -> None:
    root, eve, hers = await harness(identity)
    first = (await identity.me(root)).user_id
    made = await asyncio.gather(
        *(
            identity.do("CreatePasswordReset", token, user_id=whose)
            for _ in range(20)
            for whose, token in ((eve, root), (first, hers))
        )
    )
    assert len({each.code for each in made}) == 40
