"""Owner of a blob: a user's run, and the name in the store that follows from it."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from bos_errors import InvalidArgument

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Owner:
    """A run of a user. Its blobs are found under it alone, equal ones of other runs included."""

    user_id: str
    run_id: UUID

    @property
    def prefix(self) -> str:
        """Where its blobs are. User ids may hold anything, so their digest stands for them."""
        return f"{user_prefix(self.user_id)}/{self.run_id}"

    def key(self, digest: str) -> str:
        """Where the blob of this digest is.

        Raises:
            InvalidArgument: that is no digest, so it could name anything.
        """
        if not _DIGEST.fullmatch(digest):
            raise InvalidArgument.field("digest", "must be 64 lower-case hexadecimal digits")
        return f"{self.prefix}/{digest}"


def user_prefix(user_id: str) -> str:
    """Where all blobs of a user are."""
    return hashlib.sha256(user_id.encode()).hexdigest()
