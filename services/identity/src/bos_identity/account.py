"""An account as it is stored: its user, and the hash of the password."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from bos.identity.v1 import User


@dataclass(frozen=True, slots=True)
class Account:
    """A user, and the hash of the password."""

    user_id: UUID
    user: User
    password: str | None = field(repr=False)
    password_changed_at: datetime
