"""Under which identity PostgreSQL runs: it refuses to run as root and wants a user with a name."""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from bos_errors import ConfigurationError

RunAs = Literal["auto", "self", "user_namespace", "nobody"]

_NOBODY = 65534


@dataclass(frozen=True, slots=True)
class Identity:
    """Unix user of the programs of PostgreSQL, for the kernel and for themselves."""

    kind: Literal["self", "user_namespace", "nobody"]
    """``self``: as we are. ``user_namespace``: under another uid inside a new user namespace,
    while files are still reached as ours. ``nobody``: really as that user."""
    uid: int
    gid: int

    @property
    def file_owner(self) -> tuple[int, int]:
        """Uid and gid that must own the data, as seen from outside."""
        if self.kind == "nobody":
            return self.uid, self.gid
        return os.geteuid(), os.getegid()


def choose_identity(run_as: RunAs, works: Callable[[Identity], bool]) -> Identity:
    """Pick the least intrusive identity under which PostgreSQL can run here.

    Args:
        run_as: ``auto``, or the one identity that must be used.
        works: Tries a harmless program under an identity.

    Raises:
        ConfigurationError: None is possible; the message says what would be.
    """
    root = os.geteuid() == 0
    own = Identity("self", os.geteuid(), os.getegid())
    nobody = _unprivileged_user()
    namespaced = Identity("user_namespace", nobody.pw_uid, nobody.pw_gid) if nobody else None
    dropped = Identity("nobody", nobody.pw_uid, nobody.pw_gid) if nobody and root else None
    if run_as == "self" or (run_as == "auto" and not root and _has_name(own.uid)):
        return own
    if namespaced and run_as in ("auto", "user_namespace") and works(namespaced):
        return namespaced
    if dropped and run_as in ("auto", "nobody"):
        return dropped
    raise ConfigurationError(
        f"The embedded PostgreSQL cannot run as uid {own.uid} here: "
        + (
            "root needs a user called nobody in /etc/passwd"
            if root
            else "that uid has no entry in /etc/passwd and user namespaces are blocked"
        )
        + ". Run as a user with a name, or set the URL of another PostgreSQL server."
    )


def _has_name(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _unprivileged_user() -> pwd.struct_passwd | None:
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(_NOBODY)
    with contextlib.suppress(KeyError):
        return pwd.getpwnam("nobody")
    return None
