"""Failures of queries over files, as callers see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos_errors import (
    DeadlineExceeded,
    InvalidArgument,
    PermissionDenied,
    ResourceExhausted,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bos_sqlguard import Violation

_MAX_TEXT = 400


class QueryRefused(PermissionDenied):
    """The guard refused the query; ``broken`` says which rules it breaks."""

    default_reason = "QUERY_REFUSED"

    def __init__(self, message: str, broken: Sequence[Violation] = ()) -> None:
        super().__init__(message)
        self.broken = tuple(broken)


class QueryFailed(InvalidArgument):
    """The engine refused or failed the query."""

    default_reason = "QUERY_FAILED"

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split())[:_MAX_TEXT])


class QueryTimedOut(DeadlineExceeded):
    """The files were not read, or the query not answered, within the time limit."""

    default_reason = "QUERY_TIMED_OUT"

    def __init__(self, timeout_s: float) -> None:
        super().__init__(f"The query was stopped after {timeout_s:g} s; ask for less or aggregate.")


class QueryTooLarge(ResourceExhausted):
    """Reading the files or answering the query takes more memory than it may."""

    default_reason = "QUERY_TOO_LARGE"

    def __init__(self) -> None:
        super().__init__(
            "The query needs more memory than one may have; filter earlier, or aggregate more."
        )


class FileNotReadable(InvalidArgument):
    """A file that cannot be read as tables; the message says why."""

    default_reason = "FILE_NOT_READABLE"

    def __init__(self, file: str, why: str) -> None:
        super().__init__(f"The file {file!r} cannot be read as a table: {why}.")
        self.why = why


class QueriesBusy(ResourceExhausted):
    """No query slot became free in time."""

    default_reason = "QUERIES_BUSY"

    def __init__(self) -> None:
        super().__init__("Too many queries over files run at once.", retry_after_s=1)
