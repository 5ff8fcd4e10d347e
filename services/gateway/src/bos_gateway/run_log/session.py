"""PostgreSQL sessions of a replica: schema, names, and how many it opens at most."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from uuid import UUID

SCHEMA: Final = "gateway"
MIGRATIONS: Final = Path(__file__).parents[1] / "migrations"
POOL_SIZE: Final = 8
READERS: Final = 8
MOST_SESSIONS: Final = POOL_SIZE + READERS + 5
"""Connections that one gateway opens at most: the pools, the writer's three (appends, accepts, what
is slow), the lease and the listener."""


def session_name(part: str, replica_id: UUID) -> str:
    """``application_name`` of a session; by its id the dead replica's sessions are ended."""
    return f"bos-gateway-{part} {replica_id}"
