"""Sessions of one login that try statements out: each says done, refused or failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a statement; ``text`` is the database's message."""

    kind: Literal["done", "refused", "failed"]
    text: str = ""


class RoleSession(Protocol):
    """A session of the role."""

    async def attempt(self, sql: str) -> Outcome:
        """Run ``sql`` in a transaction that is rolled back; refused: for want of a right."""

    async def surplus(self, granted: frozenset[tuple[str, str]]) -> list[str]:
        """What the catalogue says the role may do beyond reading the tables in ``granted``."""


class Administrator(Protocol):
    """A session of the administrator."""

    async def has_role(self, role: str) -> bool:
        """Whether there is a login of this name."""

    async def provision(self, script: str, role: str, password: str) -> None:
        """Run the script of the role, then set its password.

        Raises:
            FailedPrecondition: the database refused; with its message.
        """
