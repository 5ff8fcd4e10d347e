"""PostgreSQL sessions of a replica: named after it, so that others can end them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uuid import UUID


def session_name(part: str, replica_id: UUID) -> str:
    """``application_name`` of a session; by its id the dead replica's sessions are ended."""
    return f"bos-gateway-{part} {replica_id}"


SCHEMA = "gateway"
