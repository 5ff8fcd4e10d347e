"""Local standalones of this user: which are registered, and which file of a folder is believed.

A folder may come from another user: a clone, an archive, a share. So ``bos serve all`` registers
its data folder in the user's configuration folder, with a secret that the folder's
``standalone.json`` repeats; a file that does not, or whose standalone does not run, is passed over.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

FILE = "standalone.json"
LOCK = "standalone.lock"
_REGISTRATION = "registration"
_MAX_BYTES = 1024 * 1024


class NotBelieved(Exception):
    """Nothing shows that this user's own standalone wrote the file; says what is missing."""


def config_folder() -> Path:
    """Where this user's things of Bos are kept between commands.

    Raises:
        RuntimeError: this user has no home.
    """
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "bos"


def register(data: Path) -> dict[str, str]:
    """Register a data folder of this user; returns what its file must say to be believed.

    Raises:
        OSError: the configuration folder cannot be written.
        RuntimeError: this user has none.
    """
    data = data.resolve()
    entry = _entry(data)
    entry.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _forget_lost_folders(entry.parent)
    secret = secrets.token_urlsafe(32)
    write_private(entry, json.dumps({"data": str(data), "secret": secret}))
    return {_REGISTRATION: secret}


def is_registered(data: Path, content: dict[str, Any]) -> bool:
    """Whether what a folder's file says was written by a standalone of this user in that folder."""
    data = data.resolve()
    try:
        entry = json.loads(read_private(_entry(data)))
        registered, secret = str(entry["secret"]), str(content[_REGISTRATION])
        same = hmac.compare_digest(registered.encode(), secret.encode())
        return same and entry["data"] == str(data)
    except (NotBelieved, ValueError, KeyError, TypeError, RuntimeError):
        return False


def read_believed(path: Path) -> dict[str, Any]:
    """The content of a folder's ``standalone.json``.

    Raises:
        NotBelieved: it is not of a running standalone of this user.
    """
    try:
        content = json.loads(read_private(path))
    except (ValueError, RecursionError):
        raise NotBelieved("it cannot be read") from None
    if not isinstance(content, dict) or not is_registered(path.parent, content):
        raise NotBelieved("no `bos serve all` of yours wrote it")
    if not _is_held(path.with_name(LOCK)):
        raise NotBelieved("its `bos serve all` does not run")
    return content


def read_private(path: Path) -> str:
    """The text of a file that this user alone can read and write.

    Raises:
        NotBelieved: it is missing, of another user, open to others, a link, or huge.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise NotBelieved(f"it cannot be opened ({error.strerror})") from None
    with os.fdopen(descriptor, "rb") as file:
        _require_own(file.fileno())
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise NotBelieved("it is too large")
    return content.decode("utf-8", "replace")


def write_private(path: Path, text: str) -> None:
    """Write atomically: readers see the old or the new content, and other users see none."""
    partial = path.with_name(path.name + ".partial")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    partial.replace(path)


def _entry(data: Path) -> Path:
    name = hashlib.sha256(os.fsencode(data)).hexdigest()[:32]
    return config_folder() / "standalones" / f"{name}.json"


def _forget_lost_folders(entries: Path) -> None:
    """Remove registrations whose folder is gone, so that they do not pile up."""
    for entry in entries.glob("*.json"):
        with suppress(NotBelieved, OSError, ValueError, KeyError, TypeError):
            if not Path(json.loads(read_private(entry))["data"]).exists():
                entry.unlink()


def _require_own(descriptor: int) -> None:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise NotBelieved("it is not a plain file")
    if status.st_uid != os.geteuid():
        raise NotBelieved("it belongs to another user")
    if status.st_mode & 0o077:
        raise NotBelieved("others may open it; it must have mode 0600")


def _is_held(lock: Path) -> bool:
    """Whether a process holds the lock of a data folder; it dies with its owner."""
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
