"""Fields of the call or run in progress that every log line carries: run, and user as a digest."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from structlog.typing import EventDict, WrappedLogger

_DIGEST_CHARS = 16

_fields: ContextVar[Mapping[str, str] | None] = ContextVar("bos_log_fields", default=None)


def user_digest(user_id: str) -> str:
    """Digest of a user id for log lines: the same in all services, not the id itself."""
    return hashlib.sha256(user_id.encode()).hexdigest()[:_DIGEST_CHARS]


def set_log_fields(user_id: str = "", run_id: str = "") -> None:
    """Log lines of the current task carry these from now on; empty ones are left out."""
    fields = {}
    if run_id:
        fields["run"] = run_id
    if user_id:
        fields["user_digest"] = user_digest(user_id)
    _fields.set(fields)


@contextmanager
def log_fields(user_id: str = "", run_id: str = "") -> Iterator[None]:
    """Log lines of the block, and of the tasks that it starts, carry these."""
    reset = _fields.set(None)
    try:
        set_log_fields(user_id, run_id)
        yield
    finally:
        _fields.reset(reset)


def add_log_fields(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Processor of structlog: add the fields that the line does not set itself."""
    for name, value in (_fields.get() or {}).items():
        event.setdefault(name, value)
    return event
