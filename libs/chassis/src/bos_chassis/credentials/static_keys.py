"""Static keys: one of a variable, and those of a file that may be replaced while a service runs."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path
from typing import Final

from bos_chassis.credentials.watched_files import REFRESH_S, WatchedFiles, secret_file
from bos_chassis.telemetry import Telemetry

VARIABLE: Final = "BOS_AUTH_STATIC_KEYS_FILE"
_SHORTEST: Final = 16
_MOST: Final = 32


class StaticKeys:
    """Keys that are accepted, as digests.

    Args:
        key: One of a variable.
        file: Further ones, one a line; two of them overlap while callers change over.
        telemetry: Where it is logged that the file was replaced, or could not be.
        refresh_s: Time between two looks at the file.

    Raises:
        ConfigurationError: The file is not usable.
    """

    def __init__(
        self,
        key: str | None,
        file: Path | None = None,
        telemetry: Telemetry | None = None,
        *,
        refresh_s: float = REFRESH_S,
    ) -> None:
        self._fixed = frozenset() if key is None else frozenset({_digest(key)})
        self._file: WatchedFiles[frozenset[bytes]] | None = None
        if file is not None:
            self._file = secret_file(file, VARIABLE, _digests, telemetry, refresh_s=refresh_s)

    def hold(self, key: str) -> bool:
        """Whether this is one of them now."""
        given = _digest(key)
        held = self._fixed if self._file is None else self._fixed | self._file.current()
        # Digests have one length, so the comparison reveals neither content nor length of a key.
        return any(hmac.compare_digest(given, each) for each in held)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def _digests(text: str) -> frozenset[bytes]:
    keys = [line.strip() for line in text.splitlines() if line.strip()]
    if len(keys) > _MOST:
        raise ValueError(f"holds {len(keys)} keys, more than {_MOST}")
    if any(len(key) < _SHORTEST or not key.isascii() or " " in key for key in keys):
        raise ValueError(
            f"must hold one key a line, each of at least {_SHORTEST} characters without spaces"
        )
    return frozenset(map(_digest, keys))
