"""Data folder of a standalone: lock, API key, key files, and ``standalone.json`` for clients."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import io
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bos_client.local import FILE, LOCK, is_registered, register, write_private
from bos_errors import ConfigurationError
from bos_identity.signing.key_ring import new_key_encryption_key

_CONNECTION_FILE = FILE
_SECRETS_FILE = "secrets.key"
_IDENTITY_FILE = "identity.key"
BOOTSTRAP_FILE = "bootstrap.token"
_REST_KEY_FILE = "rest.key"
_SESSION_KEYS_FILE = "session.keys"
_LOCK_FILE = LOCK
LOG_FILE = "standalone.log"
_ROTATE_BYTES = 8 * 1024 * 1024
_LOCK_ATTEMPTS = 10
_LOCK_PAUSE_S = 0.02


@dataclass(frozen=True, slots=True)
class DataFolder:
    """A data folder locked by this process, while the block of :func:`own_folder` runs."""

    path: Path
    api_key: str
    """API key of the local user: that of the last start, or a new one."""
    last_port: int
    """Port of the gateway at the last start; 0 if there was none."""
    last_rest_port: int = 0
    """Port of the REST gateway at the last start; 0 if there was none."""

    @property
    def connection_file(self) -> Path:
        """File that clients on this machine read the gateway's address and API key from."""
        return self.path / _CONNECTION_FILE

    def gateway_port(self, wanted: int) -> int:
        """Port for the gateway: ``wanted`` unless 0, else the last one if it is free, else 0.

        Reusing the port lets disconnected clients reconnect after a restart.
        """
        if wanted:
            return wanted
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", self.last_port))
            except OSError:
                return 0
        return self.last_port

    def secrets_keys(self) -> str:
        """Keys for credentials of runs and webhooks; generated at the first start and kept.

        Raises:
            ConfigurationError: it cannot be read or written.
        """

        def make() -> str:
            return f"standalone={base64.b64encode(secrets.token_bytes(32)).decode('ascii')}"

        lost = "credentials of runs under way are then lost, and webhooks have to be added anew"
        return self._kept(_SECRETS_FILE, make, lost)

    def identity_keys(self) -> str:
        """Key encryption keys for identity's signing keys; generated at the first start and kept.

        Raises:
            ConfigurationError: it cannot be read or written.
        """
        return self._kept(
            _IDENTITY_FILE,
            new_key_encryption_key,
            "delete the rows of identity.signing_keys with it, and everybody signs in anew",
        )

    def bootstrap_token(self) -> str:
        """Bootstrap token that registers the first account on a network; generated once and kept.

        Raises:
            ConfigurationError: it cannot be read or written.
        """
        return self._kept(BOOTSTRAP_FILE, lambda: secrets.token_urlsafe(32), "another one is made")

    def rest_key(self, private_key: str) -> Path:
        """Write the signing key of this start's REST gateway; returns its file.

        Raises:
            ConfigurationError: it cannot be written.
        """
        file = self.path / _REST_KEY_FILE
        try:
            write_private(file, private_key)
        except OSError as error:
            raise ConfigurationError(
                f"The key file {file} cannot be written ({type(error).__name__})."
            ) from error
        return file

    def session_keys(self) -> Path:
        """File with the key that seals session cookies of browsers; generated once and kept.

        Raises:
            ConfigurationError: it cannot be read or written.
        """

        def make() -> str:
            return base64.b64encode(secrets.token_bytes(32)).decode("ascii")

        self._kept(_SESSION_KEYS_FILE, make, "browsers have to sign in anew")
        return self.path / _SESSION_KEYS_FILE

    def _kept(self, name: str, make: Callable[[], str], if_removed: str) -> str:
        file = self.path / name
        try:
            if not file.exists():
                write_private(file, make() + "\n")
            return file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(
                f"The key file {file} cannot be used ({type(error).__name__}). Make it readable, "
                f"or remove it: {if_removed}."
            ) from error

    def announce(
        self,
        target: str,
        api_key: str,
        context: Mapping[str, Any],
        operator: Mapping[str, Any] | None = None,
        rest_url: str = "",
        identity_target: str = "",
        memory_target: str = "",
        documents_target: str = "",
        files_target: str = "",
    ) -> str:
        """Write ``standalone.json`` for clients, and register it for this user.

        Returns why it could not be registered, as a message for the user, or "": clients ignore an
        unregistered file.

        ``operator`` holds what operator commands such as `bos doctor` need; ``rest_url`` is empty
        without REST, ``identity_target`` if another issuer is configured.
        """
        registration, missing = _registration(self.path)
        content = {
            "target": target,
            "rest_url": rest_url,
            "identity_target": identity_target,
            "memory_target": memory_target,
            "documents_target": documents_target,
            "files_target": files_target,
            "api_key": api_key,
            "context": dict(context),
            "operator": dict(operator or {}),
            **registration,
        }
        write_private(self.connection_file, json.dumps(content, indent=2) + "\n")
        return missing


@contextmanager
def own_folder(path: Path) -> Iterator[DataFolder]:
    """Lock the data folder ``path`` while the block runs; the folder is created if need be.

    Raises:
        ConfigurationError: it cannot be written, or another process owns it.
    """
    path = path.absolute()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        lock = os.open(path / _LOCK_FILE, flags, 0o600)
    except OSError as error:
        raise _unusable(path, error) from error
    try:
        if not _locked(lock):
            owner = os.pread(lock, 20, 0).decode("ascii", "replace").strip() or "unknown"
            raise ConfigurationError(
                f"Bos is running on {path} already (process {owner}): `bos ask` talks to it. "
                "Stop it first, or choose another folder by BOS_STANDALONE_DATA_DIR.",
                reason="DATA_FOLDER_IN_USE",
            )
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode("ascii"), 0)
        last = _read_connection(path / _CONNECTION_FILE)
        yield DataFolder(path, last.api_key or secrets.token_urlsafe(32), last.port, last.rest_port)
    finally:
        os.close(lock)


class LogFile(io.TextIOBase):
    """Text file for appending, of its owner only; at 8 MiB it is rotated, and one old file is kept.

    A disk that is full loses lines, and fails no caller.

    Args:
        path: The file; the old one has ``.1`` behind its name.
        rotate_bytes: Size from which the next line begins a new file.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, path: Path, *, rotate_bytes: int = _ROTATE_BYTES) -> None:
        self._path = path
        self._rotate_bytes = rotate_bytes
        self._lock = threading.Lock()
        self._between_lines = True
        self._descriptor, self._bytes = _opened(path)

    def writable(self) -> bool:
        """Whether it can be written: always."""
        return True

    def write(self, text: str) -> int:
        """Append ``text``."""
        data = text.encode("utf-8", "replace")
        with self._lock, contextlib.suppress(OSError):
            if self._between_lines and self._bytes >= self._rotate_bytes:
                self._rotate()
            written = 0
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
            self._bytes += written
            self._between_lines = text.endswith("\n")
        return len(text)

    def close(self) -> None:
        """Close the file; only once."""
        with self._lock:
            if not self.closed:
                os.close(self._descriptor)
                super().close()

    def _rotate(self) -> None:
        self._path.replace(self._path.with_name(self._path.name + ".1"))
        former = self._descriptor
        self._descriptor, self._bytes = _opened(self._path)
        os.close(former)


def _opened(path: Path) -> tuple[int, int]:
    """Descriptor and size of the file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    return descriptor, os.fstat(descriptor).st_size


def open_log(folder: Path) -> LogFile:
    """Open the log file for appending.

    Raises:
        ConfigurationError: it cannot be written.
    """
    log = folder / LOG_FILE
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return LogFile(log)
    except OSError as error:
        raise _unusable(folder, error) from error


def _locked(lock: int) -> bool:
    """Take the lock, with retries: clients hold it for a moment to probe for an owner."""
    for _ in range(_LOCK_ATTEMPTS):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(_LOCK_PAUSE_S)
    return False


def _registration(folder: Path) -> tuple[dict[str, str], str]:
    """Register the folder for this user's clients; returns the entry, or why there is none."""
    try:
        return register(folder), ""
    except (OSError, RuntimeError) as error:
        return {}, (
            f"The user's configuration folder cannot be written ({error}): `bos` does not find "
            "this standalone by itself; name it with BOS_TARGET, or set XDG_CONFIG_HOME."
        )


@dataclass(frozen=True, slots=True)
class _Last:
    api_key: str = ""
    port: int = 0
    rest_port: int = 0


def _unusable(folder: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"The data folder {folder} cannot be used: {error.strerror}. "
        "Choose another one by BOS_STANDALONE_DATA_DIR."
    )


def _read_connection(path: Path) -> _Last:
    """API key and ports of the last start; empty if the file is missing or damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return _Last(
            # A folder from another source may hold a key that its author knows.
            str(content["api_key"]) if is_registered(path.parent, content) else "",
            _port(str(content["target"])),
            _port(str(content.get("rest_url") or ":0")),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return _Last()


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])
