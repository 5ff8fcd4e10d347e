"""External identities of a user at an OpenID provider, for the user's own export."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

import asyncpg

from bos_postgres import fetch, for_user

_OWN: Final = for_user(
    "SELECT issuer, subject, created_at FROM external_identities ORDER BY created_at, subject"
)


@dataclass(frozen=True, slots=True)
class ExternalIdentity:
    """Whom a provider calls by one subject, linked to a user."""

    issuer: str
    subject: str
    linked_at: datetime


@dataclass(frozen=True, slots=True)
class ExternalIdentities:
    """Links between people of providers and users, as their owners may see them."""

    readers: asyncpg.Pool[asyncpg.Record]
    """Connections of the role that sees the rows of one user."""

    async def of(self, user_id: UUID) -> list[ExternalIdentity]:
        """Those of a user, the oldest first."""
        rows = await fetch(self.readers, _OWN, str(user_id))
        return [ExternalIdentity(row["issuer"], row["subject"], row["created_at"]) for row in rows]
