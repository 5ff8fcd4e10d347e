"""Key of the search API: from the settings, or from a file that may be replaced."""

from __future__ import annotations

from typing import Final

from bos_chassis.credentials.watched_files import REFRESH_S, secret_file
from bos_chassis.telemetry import Telemetry
from bos_web.settings import WebSettings

VARIABLE: Final = "BOS_WEB_SEARCH_KEY_FILE"
_LONGEST: Final = 4096


class SearchKey:
    """The key as it is now; empty where none is set.

    Args:
        settings: Which key, or where it is.
        telemetry: Logs that the file was replaced, or could not be.
        refresh_s: Time between two looks at the file.

    Raises:
        ConfigurationError: The file is not usable.
    """

    def __init__(
        self, settings: WebSettings, telemetry: Telemetry, *, refresh_s: float = REFRESH_S
    ) -> None:
        fixed = settings.search_key
        self._fixed = "" if fixed is None else fixed.get_secret_value()
        file = settings.search_key_file
        self._file = (
            None
            if file is None
            else secret_file(file, VARIABLE, _parse, telemetry, refresh_s=refresh_s)
        )

    def __call__(self, anew: bool) -> str:
        """The key of a few seconds ago at most; with ``anew`` as it is in this moment."""
        if self._file is None:
            return self._fixed
        return self._file.look() if anew else self._file.current()


def _parse(text: str) -> str:
    if len(text) > _LONGEST or not text.isascii() or not text.isprintable():
        raise ValueError(f"must hold one key in one line, of at most {_LONGEST} ASCII characters")
    return text
