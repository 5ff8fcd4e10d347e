"""The secret that identity has at the OpenID provider, in a file that may be replaced."""

from __future__ import annotations

from typing import Final

from bos_chassis.credentials.watched_files import REFRESH_S, WatchedFiles, secret_file
from bos_chassis.telemetry import Telemetry
from bos_identity.openid.settings import OpenIdSettings

VARIABLE: Final = "BOS_IDENTITY_OPENID_CLIENT_SECRET_FILE"
_LONGEST: Final = 4096


class ClientSecret:
    """The secret of the settings as it is now; None for a public client.

    Args:
        settings: Which secret, or where it is.
        telemetry: Where it is logged that the file was replaced, or could not be.
        refresh_s: Time between two looks at the file.

    Raises:
        ConfigurationError: The file is not usable.
    """

    def __init__(
        self,
        settings: OpenIdSettings,
        telemetry: Telemetry | None = None,
        refresh_s: float = REFRESH_S,
    ) -> None:
        fixed, file = settings.client_secret, settings.client_secret_file
        self._fixed = None if fixed is None else fixed.get_secret_value()
        self._file: WatchedFiles[str] | None = None
        if file is not None:
            self._file = secret_file(file, VARIABLE, _parse, telemetry, refresh_s=refresh_s)

    def current(self) -> str | None:
        """The secret, as of a few seconds ago at most."""
        return self._fixed if self._file is None else self._file.current()

    def look(self) -> str | None:
        """The secret as it is in this moment, for when it was refused."""
        return self._fixed if self._file is None else self._file.look()


def _parse(text: str) -> str:
    if len(text) > _LONGEST or not text.isprintable():
        raise ValueError(f"must hold one secret in one line, of at most {_LONGEST} characters")
    return text
