"""Makers of codes for others: their role is checked by the statement that makes one."""

from __future__ import annotations

from typing import Final

from bos_chassis.names import ADMINISTRATOR

MAY_NOT_ADMINISTER: Final = (
    "((password IS NOT NULL"
    " OR EXISTS (SELECT FROM external_identities AS e WHERE e.user_id = users.user_id))"
    f" AND (deactivated_at IS NOT NULL OR NOT roles @> '{{{ADMINISTRATOR}}}'))"
)
"""Of a row of ``users`` that is locked. Others have their roles from settings."""
