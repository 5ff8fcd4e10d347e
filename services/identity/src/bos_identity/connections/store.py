"""Users' connections to outside systems in the store, their secrets encrypted."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cryptography.fernet import InvalidToken

from bos.identity.v1 import Connection, ConnectionSecret
from bos_errors import FailedPrecondition, NotFound, ResourceExhausted
from bos_postgres import acting_for, fetch, for_user
from bos_postgres.audit import By, deed, record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    import asyncpg
    from cryptography.fernet import MultiFernet
    from structlog.typing import FilteringBoundLogger

MOST_CONNECTIONS: Final = 32
"""Connections of one account."""

_COLUMNS = "kind, label, fields, connections.created_at, connections.updated_at"
_LOCK_OWNER = "SELECT 1 FROM users WHERE user_id = $1 AND deactivated_at IS NULL FOR NO KEY UPDATE"
_OTHERS = "SELECT count(*) FROM connections WHERE user_id = $1 AND kind <> $2"
_EXISTS = "SELECT EXISTS (SELECT FROM connections WHERE user_id = $1 AND kind = $2)"
_PUT = f"""
INSERT INTO connections (user_id, kind, label, fields, sealed_secret)
VALUES ($1, $2, $3, $4::jsonb, $5)
ON CONFLICT (user_id, kind) DO UPDATE
SET label = excluded.label, fields = excluded.fields, sealed_secret = excluded.sealed_secret,
    updated_at = now()
RETURNING {_COLUMNS}
"""  # noqa: S608  Our own columns.
_LIST_OWN = for_user(
    f"SELECT {_COLUMNS} FROM connections WHERE user_id = $1 ORDER BY kind "  # noqa: S608
    f"LIMIT {MOST_CONNECTIONS}"
)
_DELETE = "DELETE FROM connections WHERE user_id = $1 AND kind = $2"
_OF_KINDS = f"""
SELECT {_COLUMNS}, sealed_secret FROM connections JOIN users USING (user_id)
WHERE user_id = $1 AND kind = ANY($2) AND users.deactivated_at IS NULL
ORDER BY kind
"""  # noqa: S608
_GATEWAY: Final = By("gateway", "service")


@dataclass(frozen=True, slots=True)
class NewConnection:
    """A connection to be stored."""

    user_id: UUID
    kind: str
    label: str
    fields: Mapping[str, str]


class Connections:
    """Connections of users; one of a kind for each.

    Args:
        pool: Connections of the service's own role.
        readers: Connections of the role that sees the rows of one user.
        sealer: Encrypts secrets; None if the operator has configured no key for that.
        log: Of the service.
    """

    def __init__(
        self,
        pool: asyncpg.Pool[asyncpg.Record],
        readers: asyncpg.Pool[asyncpg.Record],
        sealer: MultiFernet | None,
        log: FilteringBoundLogger,
    ) -> None:
        self._pool = pool
        self._readers = readers
        self._sealer = sealer
        self._log = log

    async def put(self, new: NewConnection, secret: str, by: By) -> Connection:
        """Store a connection in place of the user's former one of this kind.

        Raises:
            FailedPrecondition: No key is configured that encrypts secrets.
            NotFound: There is no such account, or it is closed.
            ResourceExhausted: It has too many connections.
        """
        if self._sealer is None:
            raise FailedPrecondition(
                "This service cannot keep secrets of connections. Its operator has to set "
                "BOS_IDENTITY_KEY_ENCRYPTION_KEYS.",
                reason="NO_KEY_ENCRYPTION_KEYS",
            )
        sealed = self._sealer.encrypt(_bound(new.user_id, new.kind, secret))
        async with deed(self._pool) as connection:
            if await connection.fetchval(_LOCK_OWNER, new.user_id) is None:
                raise NotFound("There is no such user.")
            if await connection.fetchval(_OTHERS, new.user_id, new.kind) >= MOST_CONNECTIONS:
                raise ResourceExhausted(
                    f"The account has {MOST_CONNECTIONS} connections; delete some first.",
                    reason="TOO_MANY_CONNECTIONS",
                )
            known = await connection.fetchval(_EXISTS, new.user_id, new.kind)
            fields = json.dumps(dict(new.fields))
            row = await connection.fetchrow(_PUT, new.user_id, new.kind, new.label, fields, sealed)
            assert row is not None
            action = "connection.replaced" if known else "connection.created"
            await record(connection, [by.entry(action, new.kind)])
        return _connection(row)

    async def list_own(self, user_id: UUID) -> list[Connection]:
        """The caller's connections by kind, without secrets."""
        rows = await fetch(self._readers, _LIST_OWN, str(user_id), user_id)
        return [_connection(row) for row in rows]

    async def delete(self, user_id: UUID, kind: str, by: By) -> bool:
        """Delete one of the caller's connections; whether there was one."""
        async with acting_for(self._readers, str(user_id)) as connection:
            if await connection.execute(_DELETE, user_id, kind) != "DELETE 1":
                return False
            await record(connection, [by.entry("connection.deleted", kind)])
            return True

    async def hand_out(
        self, user_id: UUID, kinds: Sequence[str], *, run_id: str, agent: str
    ) -> list[ConnectionSecret]:
        """The user's connections of these kinds with their secrets, for a step of ``agent``.

        A secret that cannot be decrypted is left out and logged: its key is no longer configured,
        or the row was changed.
        """
        async with deed(self._pool) as connection:
            rows = await connection.fetch(_OF_KINDS, user_id, list(kinds))
            found = [each for row in rows if (each := self._opened(user_id, row)) is not None]
            entries = [
                _GATEWAY.entry(
                    "connection.handed_out",
                    each.connection.kind,
                    user=str(user_id),
                    run=run_id,
                    agent=agent,
                )
                for each in found
            ]
            if entries:
                await record(connection, entries)
        return found

    def _opened(self, user_id: UUID, row: asyncpg.Record) -> ConnectionSecret | None:
        try:
            if self._sealer is None:
                raise InvalidToken
            plain = json.loads(self._sealer.decrypt(row["sealed_secret"]))
            if (plain["user"], plain["kind"]) != (str(user_id), row["kind"]):
                raise InvalidToken
            return ConnectionSecret(connection=_connection(row), secret=plain["secret"])
        except InvalidToken:
            self._log.error("connection cannot be read", user=str(user_id), kind=row["kind"])
            return None


def _bound(user_id: UUID, kind: str, secret: str) -> bytes:
    """A secret with its owner, so that in another row it is recognised as foreign."""
    return json.dumps({"user": str(user_id), "kind": kind, "secret": secret}).encode()


def _connection(row: asyncpg.Record) -> Connection:
    fields = row["fields"]
    found = Connection(
        kind=row["kind"],
        label=row["label"],
        fields=json.loads(fields) if isinstance(fields, str) else fields,
    )
    found.create_time.FromDatetime(row["created_at"])
    found.update_time.FromDatetime(row["updated_at"])
    return found
