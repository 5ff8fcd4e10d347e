"""Erasure of all data of a user in memory, as a command.

::

    python -m bos_memory.retention erase --user U

Erase the user's runs first (``bos runs erase --user U``): a run that
ends later is recorded as a new conversation.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from bos_chassis.settings import Settings
from bos_errors import BosError, NotFound
from bos_memory.service import SCHEMA
from bos_postgres import connect, statement_errors
from bos_postgres.audit import OPERATOR, record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bos_postgres.connections import Session

# Messages and summaries are deleted with their conversations, so they are counted first.
_ERASE = """
WITH said AS (
    SELECT count(*) AS messages FROM messages WHERE user_id = $1
), talks AS (
    DELETE FROM conversations WHERE user_id = $1 RETURNING 1
), graves AS (
    DELETE FROM deleted_conversations WHERE user_id = $1
), known AS (
    DELETE FROM user_long_term_memory WHERE user_id = $1 RETURNING 1
)
SELECT (SELECT count(*) FROM talks) AS conversations, messages,
       (SELECT count(*) FROM known) AS profiles
FROM said
"""


class _StoreSettings(Settings):
    """The one setting of the memory service that the command needs."""

    model_config = SettingsConfigDict(env_prefix="BOS_MEMORY_")

    store_url: str = Field(
        min_length=1,
        description="PostgreSQL URL of conversations and long-term memory, whose option "
        "password_file names a file in the place of a password",
    )


@dataclass(frozen=True, slots=True)
class Erased:
    """Numbers of deleted rows."""

    conversations: int
    messages: int
    profiles: int
    """1 if there was long-term memory, or the marker of its deletion."""


async def erase(session: Session, user_id: str) -> Erased:
    """Delete all data of a user.

    Raises:
        NotFound: there is nothing to delete.
    """
    async with session.transaction():
        row = await session.fetchrow(_ERASE, user_id)
        assert row is not None
        erased = Erased(row["conversations"], row["messages"], row["profiles"])
        if not (erased.conversations or erased.profiles):
            raise NotFound(f"Nothing is stored of user {user_id}.")
        count = str(erased.conversations)
        await record(session, [OPERATOR.entry("memory.erased", user_id, conversations=count)])
    return erased


async def _erase(user_id: str) -> None:
    settings = _StoreSettings.load()
    async with connect(
        settings.store_url, application_name="bos-memory-retention", schema=SCHEMA
    ) as session:
        with statement_errors(session):
            erased = await erase(session, user_id)
    print(
        f"Erased {erased.conversations} conversation(s) of user {user_id} with {erased.messages} "
        f"message(s), and {'their' if erased.profiles else 'no'} long-term memory."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status: 0 done, 1 refused."""
    parser = argparse.ArgumentParser(
        prog="python -m bos_memory.retention",
        description="Deletes a user from the database that BOS_MEMORY_STORE_URL names.",
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("erase", help="delete everything that is stored of a user")
    verb.add_argument("--user", required=True, help="this user")
    given = parser.parse_args(arguments)
    try:
        asyncio.run(_erase(given.user))
    except BosError as error:
        print(error.message, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
