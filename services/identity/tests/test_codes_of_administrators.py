"""Codes that an administrator has handed out end with the right to make them."""

import asyncio
from typing import Any

import pytest
from identity_harness import Caller, until

from bos.identity.v1 import (
    CreateInvitationRequest,
    CreatePasswordResetRequest,
    DeactivateUserRequest,
    ResetPasswordRequest,
    SetUserRolesRequest,
)
from bos_errors import PermissionDenied
from bos_postgres import connect

NEW = "another one, longer"
TAKEN_AWAY = {
    "SetUserRoles": lambda user_id: SetUserRolesRequest(user_id=user_id, roles=["user"]),
    "DeactivateUser": lambda user_id: DeactivateUserRequest(user_id=user_id),
}
MAKING = {
    "CreateInvitation": lambda _: CreateInvitationRequest(roles=["administrator"]),
    "CreatePasswordReset": lambda user_id: CreatePasswordResetRequest(user_id=user_id),
}
WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


async def harness(identity: Caller) -> tuple[str, str, str]:
    """Two administrators and their tokens: the first one's, then id and token of the other."""
    root = await identity.administrator()
    eve = await identity.invited(root, "eve", roles=["user", "administrator"])
    return root, eve.user_id, (await identity.log_in("eve")).tokens.access_token


async def codes(identity: Caller, token: str, user_id: str) -> tuple[str, str]:
    """An invitation that makes an administrator, and a password reset code for another user."""
    made = [await identity.call(each, make(user_id), token) for each, make in MAKING.items()]
    return made[0].code, made[1].code


async def use_reset(identity: Caller, code: str) -> Any:
    return await identity.call("ResetPassword", ResetPasswordRequest(code=code, new_password=NEW))


@pytest.mark.parametrize("method", TAKEN_AWAY)
async def test_codes_of_a_former_administrator_are_void(identity: Caller, method: str) -> None:
    root, eve, hers = await harness(identity)
    carl = (await identity.invited(root, "carl")).user_id
    dora = (await identity.invited(root, "dora")).user_id
    her_invitation, her_code = await codes(identity, hers, carl)
    own_invitation, own_code = await codes(identity, root, dora)
    await identity.call(method, TAKEN_AWAY[method](eve), root)
    with pytest.raises(PermissionDenied) as refused:
        await identity.register("eve2", invitation=her_invitation)
    assert refused.value.reason == "INVITATION_INVALID"
    with pytest.raises(PermissionDenied) as refused:
        await use_reset(identity, her_code)
    assert refused.value.reason == "RESET_CODE_INVALID"
    # What others have made is as good as before.
    assert list((await identity.register("fay", invitation=own_invitation)).roles) == [
        "administrator"
    ]
    assert (await use_reset(identity, own_code)).username == "dora"


async def test_who_stays_an_administrator_keeps_the_codes(identity: Caller) -> None:
    root, eve, hers = await harness(identity)
    invitation, code = await codes(identity, hers, (await identity.invited(root, "carl")).user_id)
    roles = SetUserRolesRequest(user_id=eve, roles=["administrator", "operator"])
    await identity.call("SetUserRoles", roles, root)
    assert await identity.register("gus", invitation=invitation)
    assert (await use_reset(identity, code)).username == "carl"


@pytest.mark.parametrize("making", MAKING)
async def test_a_code_is_not_made_while_the_right_to_it_is_taken_away(
    identity: Caller, postgres_dsn: str, making: str
) -> None:
    root, eve, hers = await harness(identity)
    carl = (await identity.invited(root, "carl")).user_id
    async with (
        connect(postgres_dsn, schema="identity") as connection,
        connect(postgres_dsn) as watcher,
    ):
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("UPDATE users SET roles = '{user}' WHERE user_id = $1", eve)
        begun = asyncio.create_task(identity.call(making, MAKING[making](carl), hers))

        async def waits() -> bool:
            return begun.done() or bool(await watcher.fetchval(WAITING))

        await until(waits)
        await transaction.commit()
        with pytest.raises(PermissionDenied) as refused:
            await begun
        assert refused.value.reason == "ROLE_REQUIRED"
        left = "SELECT (SELECT count(*) FROM password_resets) + (SELECT count(*) FROM invitations"
        assert await connection.fetchval(f"{left} WHERE used_by IS NULL)") == 0


async def test_mutual_reset_codes_do_not_deadlock(
    identity: Caller,
) -> None:
    root, eve, hers = await harness(identity)
    first = (await identity.me(root)).user_id
    made = await asyncio.gather(
        *(
            identity.call("CreatePasswordReset", CreatePasswordResetRequest(user_id=whose), token)
            for _ in range(20)
            for whose, token in ((eve, root), (first, hers))
        )
    )
    assert len({each.code for each in made}) == 40
