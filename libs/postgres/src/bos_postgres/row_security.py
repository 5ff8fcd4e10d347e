"""Reading on behalf of a user: PostgreSQL itself hides the rows of all others.

A service's own role owns its tables and sees every row. What a user asks for is read over a pool of
its own (``open_database(..., role=...)``) whose role is subject to row-level security, by policies
that compare the owner of a row with the setting ``bos.user_id``::

    CREATE POLICY own_runs ON runs FOR SELECT TO bos_gateway_reader
        USING (user_id = nullif(current_setting('bos.user_id', true), ''));

A query that forgets to ask for the owner then returns nothing of another user; one that does not
say for whom it is returns nothing at all.

The planner works such a setting out before it is in force, and expects no rows. Where a table is
large and read by other keys than the user, compare inside of a function in PL/pgSQL, which it
leaves alone (``is_caller`` of the gateway).
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from bos_postgres.connections import acquire, statement_errors

USER_SETTING: Final = "bos.user_id"
_ARGUMENT: Final = re.compile(r"\$(\d+)")


def for_user(query: str, *settings: str) -> str:
    """``query`` as the user in ``$1``, in one statement; its own arguments come behind.

    What is ``$1`` in the query is ``$2`` in the result, and so on. Further settings that policies
    look at have their values between the user and the query's own arguments. Every setting is
    local to the statement. They are in force before the query reads its first row: the query is
    the inner side of a join that needs the outer side's row first, and that row is their values.
    """
    behind = _ARGUMENT.sub(lambda found: f"${int(found[1]) + 1 + len(settings)}", query)
    more = "".join(
        f", set_config('{name}', ${place}, true) AS setting_{place}"
        for place, name in enumerate(settings, 2)
    )
    # Named here as well, so that none of them can be left out as unused.
    used = "".join(f" AND caller.setting_{place + 2} IS NOT NULL" for place in range(len(settings)))
    return (
        "SELECT answer.* "  # noqa: S608  The query is ours; what callers say are its arguments.
        f"FROM (SELECT set_config('{USER_SETTING}', $1, true) AS user_id{more} OFFSET 0) AS caller "
        "CROSS JOIN LATERAL "
        f"(SELECT * FROM ({behind}) AS query WHERE caller.user_id <> ''{used} OFFSET 0) AS answer"
    )


@asynccontextmanager
async def acting_for(
    pool: asyncpg.Pool[asyncpg.Record], user_id: str
) -> AsyncIterator[PoolConnectionProxy[asyncpg.Record]]:
    """A transaction as the user, for what :func:`for_user` cannot hold, such as an UPDATE.

    Raises:
        Unavailable: No connection is free, or the server went away.
        DeadlineExceeded: A statement ran into the statement time-out.
    """
    async with acquire(pool) as connection:
        with statement_errors(connection):
            async with connection.transaction():
                await connection.execute("SELECT set_config($1, $2, true)", USER_SETTING, user_id)
                yield connection
