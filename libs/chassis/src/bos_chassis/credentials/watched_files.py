"""Secrets and certificates in files that change while a service runs.

A file is looked at again when its content is asked for, at most once in a few seconds. One that is
missing, empty, too large, half written or invalid changes nothing: what was read before stays,
the log says so, and a gauge is 1 until it is mended. What a file holds is never logged.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Generic, TypeVar

from bos_chassis.telemetry import Telemetry
from bos_errors import ConfigurationError

REFRESH_S: Final = 5.0
MAX_BYTES: Final = 64 * 1024

T = TypeVar("T")


class WatchedFiles(Generic[T]):
    """Contents of some files, reread when they change; may be asked from any thread.

    Args:
        paths: The files, which belong together.
        read: Makes one value of them, and raises ConfigurationError if they are not usable.
        refresh_s: Time between two looks.
        on_change: Called after each look at a change: with None, or with what is wrong with it.

    Raises:
        ConfigurationError: They are not usable at the start.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        read: Callable[[], T],
        *,
        refresh_s: float = REFRESH_S,
        on_change: Callable[[str | None], None] | None = None,
    ) -> None:
        self._paths = tuple(paths)
        self._read = read
        self._refresh_s = refresh_s
        self._on_change = on_change
        self._lock = threading.Lock()
        self._seen = self._stamps()
        self._current = read()
        self._looked = time.monotonic()

    def current(self) -> T:
        """The value as it is now, the same object until the files change."""
        with self._lock:
            if time.monotonic() - self._looked >= self._refresh_s:
                self._look()
            return self._current

    def look(self) -> T:
        """The value as it is now, looked at without regard to the last look."""
        with self._lock:
            self._look()
            return self._current

    def _look(self) -> None:
        self._looked = time.monotonic()
        stamps = self._stamps()
        if stamps == self._seen:
            return
        self._seen = stamps
        problem = None
        try:
            self._current = self._read()
        except ConfigurationError as error:
            problem = error.message
        if self._on_change is not None:
            self._on_change(problem)

    def _stamps(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(map(_stamp, self._paths))


def secret_file(
    path: Path,
    variable: str,
    parse: Callable[[str], T],
    telemetry: Telemetry | None = None,
    *,
    refresh_s: float = REFRESH_S,
) -> WatchedFiles[T]:
    """Watch the one file that ``variable`` names.

    Args:
        path: The file, such as one that a secret is mounted as.
        variable: Named in messages, in the log and in the metric.
        parse: Makes the value of its text, without the white space around it; raises ValueError
            with what it must hold, and never with what it holds.
        telemetry: Logs changes and defects; without it defects are, by standard logging.
        refresh_s: Time between two looks.

    Raises:
        ConfigurationError: It is not usable at the start.
    """

    def read() -> T:
        text = read_secret(path, variable)
        try:
            return parse(text)
        except ValueError as error:
            raise ConfigurationError(f"{variable}: {path} {error}.") from None

    on_change = _plain_logger(variable) if telemetry is None else _logger(path, variable, telemetry)
    return WatchedFiles((path,), read, refresh_s=refresh_s, on_change=on_change)


def read_secret(path: Path, variable: str) -> str:
    """The text of a file without the white space around it.

    Raises:
        ConfigurationError: It cannot be read, is no text, is empty, or is too large.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        text = content.decode().strip()
    except OSError as error:
        raise ConfigurationError(f"{variable}: {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{variable}: {path} holds no UTF-8 text.") from None
    if len(content) > MAX_BYTES:
        raise ConfigurationError(f"{variable}: {path} holds more than {MAX_BYTES} bytes.")
    if not text or "\0" in text:
        raise ConfigurationError(f"{variable}: {path} is empty, or not written to its end.")
    return text


def _logger(path: Path, variable: str, telemetry: Telemetry) -> Callable[[str | None], None]:
    log = telemetry.logger("bos.secrets")
    unusable = telemetry.file_metrics.unusable.labels(telemetry.service, variable)
    unusable.set(0)

    def on_change(problem: str | None) -> None:
        unusable.set(0 if problem is None else 1)
        if problem is None:
            log.info("secret replaced", variable=variable, file=str(path))
        else:
            log.error("secret not replaced", variable=variable, problem=problem)

    return on_change


def _plain_logger(variable: str) -> Callable[[str | None], None]:
    log = logging.getLogger("bos.secrets")

    def on_change(problem: str | None) -> None:
        if problem is not None:
            log.error("secret not replaced: %s", problem, extra={"variable": variable})

    return on_change


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
