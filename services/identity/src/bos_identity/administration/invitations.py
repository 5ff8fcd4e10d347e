"""Invitations in the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID, uuid4

import asyncpg

from bos.identity.v1 import Invitation
from bos_chassis.names import USER
from bos_identity.administration.makers import MAY_NOT_ADMINISTER
from bos_identity.credentials.callers import no_administrator
from bos_identity.opaque_tokens import digest, new_code
from bos_postgres import execute, fetch, fetchval
from bos_postgres.audit import By, deed, record

MOST_LISTED: Final = 200
_PREFIX: Final = "bosi_"  # so that scanners for leaked secrets recognise them
_KEPT_S: Final = 30 * 86400.0

_COLUMNS = "invitation_id, roles, groups, created_at, expires_at"
_GOOD = "used_by IS NULL AND expires_at > now()"
# Taking a role away locks the account as well, and voids what was made before.
_INSERT = f"""
WITH maker AS (
    SELECT {MAY_NOT_ADMINISTER} AS barred FROM users WHERE user_id = $5 FOR SHARE
)
INSERT INTO invitations (invitation_id, code_digest, roles, groups, created_by, expires_at)
SELECT $1, $2, $3, $4, $5, now() + make_interval(secs => $6)
WHERE NOT EXISTS (SELECT FROM maker WHERE barred)
RETURNING {_COLUMNS}
"""  # noqa: S608  Our own columns.
_LIST = f"""
SELECT {_COLUMNS} FROM invitations WHERE {_GOOD}
ORDER BY created_at DESC, invitation_id LIMIT {MOST_LISTED}
"""  # noqa: S608
_IS_GOOD = f"SELECT EXISTS (SELECT FROM invitations WHERE code_digest = $1 AND {_GOOD})"  # noqa: S608
_REVOKE = "DELETE FROM invitations WHERE invitation_id = $1 AND used_by IS NULL"
_FORGET = """
DELETE FROM invitations WHERE invitation_id IN (
    SELECT invitation_id FROM invitations
    WHERE expires_at < now() - make_interval(secs => $1) LIMIT $2)
"""


@dataclass(frozen=True, slots=True)
class NewInvitation:
    """An invitation to be made."""

    roles: Sequence[str]
    groups: Sequence[str]
    life_s: float
    made_by: UUID


class Invitations:
    """Invitations that let people register.

    Args:
        pool: Connections of the service's own role.
    """

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self._pool = pool

    async def make(self, new: NewInvitation, by: By) -> tuple[Invitation, str]:
        """A new invitation, and its code, which is not kept.

        Raises:
            PermissionDenied: Its maker has ceased to be an administrator just now.
        """
        code = new_code(_PREFIX)
        given = (uuid4(), digest(code), list(new.roles) or [USER], list(new.groups), new.made_by)
        async with deed(self._pool) as connection:
            row = await connection.fetchrow(_INSERT, *given, new.life_s)
            if row is None:
                raise no_administrator()
            entry = by.entry(
                "account.invited",
                str(row["invitation_id"]),
                roles=" ".join(row["roles"]),
                groups=" ".join(row["groups"]),
            )
            await record(connection, [entry])
        return _invitation(row), code

    async def is_good(self, code_digest: bytes) -> bool:
        """Whether the code can be used to register at this moment."""
        return bool(await fetchval(self._pool, _IS_GOOD, code_digest))

    async def list(self) -> list[Invitation]:
        """Those that can be used, the newest first."""
        return [_invitation(row) for row in await fetch(self._pool, _LIST)]

    async def revoke(self, invitation_id: UUID, by: By) -> bool:
        """Make one useless; whether there was one."""
        async with deed(self._pool) as connection:
            if await connection.execute(_REVOKE, invitation_id) != "DELETE 1":
                return False
            await record(connection, [by.entry("invitation.revoked", str(invitation_id))])
        return True

    async def forget_old(self, batch: int) -> int:
        """Delete a batch of those that expired long ago; returns how many."""
        return int((await execute(self._pool, _FORGET, _KEPT_S, batch)).rpartition(" ")[2])


def _invitation(row: asyncpg.Record) -> Invitation:
    invitation = Invitation(
        invitation_id=str(row["invitation_id"]), roles=row["roles"], groups=row["groups"]
    )
    invitation.create_time.FromDatetime(row["created_at"])
    invitation.expire_time.FromDatetime(row["expires_at"])
    return invitation
