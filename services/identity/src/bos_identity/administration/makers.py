"""Who may make codes for others: looked at once more by the statement that makes one."""

from __future__ import annotations

from typing import Final

from bos_chassis.auth import ADMINISTRATOR

MAY_NOT_ADMINISTER: Final = (
    f"(password IS NOT NULL AND (deactivated_at IS NOT NULL OR NOT roles @> '{{{ADMINISTRATOR}}}'))"
)
"""Of a row of ``users`` that is locked. Accounts without a password have roles from settings."""
