"""Failures of queries, as callers see them. Texts never name hosts or credentials.

::

    QueryFailure (mixed into the classes below)
    ├── QueryRefused          QUERY_REFUSED          the guard said no; carries violations
    ├── QueryFailed           QUERY_FAILED           the database said no
    ├── QueryTimedOut         QUERY_TIMED_OUT        it took longer than allowed
    ├── ResultTooLarge        RESULT_TOO_LARGE       not even one row fits
    ├── DatabaseUnavailable   DATABASE_UNAVAILABLE   the server does not answer
    ├── RoleUnavailable       DATABASE_ROLE_UNAVAILABLE   ConfigurationError
    ├── NothingReadable       NOTHING_READABLE       no table of any database
    ├── FilesNotOpen          FILES_NOT_OPEN         not for the run token: ConfigurationError
    ├── DatabaseBusy          DATABASE_BUSY          all connections are in use
    ├── UnknownTable          UNKNOWN_TABLE          not on the allow-list
    └── UnknownDatabase       UNKNOWN_DATABASE       not configured: ConfigurationError
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bos_errors import (
    AgentErrorType,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    Unavailable,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bos_sqlguard import Violation

_MAX_TEXT = 400


class QueryFailure:
    """Common to all failures of this service: its ``AgentError.type``."""

    error_type: ClassVar[AgentErrorType] = AgentErrorType.QUERY_ERROR


class QueryRefused(QueryFailure, PermissionDenied):
    """The guard refused the query."""

    default_reason = "QUERY_REFUSED"

    def __init__(self, message: str, broken: Sequence[Violation]) -> None:
        super().__init__(message)
        self.broken = tuple(broken)


class QueryFailed(QueryFailure, InvalidArgument):
    """The database refused or failed the query; ``sqlstate`` is its code, where there is one."""

    default_reason = "QUERY_FAILED"

    def __init__(self, message: str, sqlstate: str = "") -> None:
        # Database texts are bounded and on one line: they go into prompts and tables.
        super().__init__(" ".join(message.split())[:_MAX_TEXT])
        self.sqlstate = sqlstate


class QueryTimedOut(QueryFailure, DeadlineExceeded):
    """The query was stopped at its time limit."""

    default_reason = "QUERY_TIMED_OUT"

    def __init__(self, timeout_s: float) -> None:
        super().__init__(f"The query was stopped after {timeout_s:g} s; ask for less or aggregate.")


class ResultTooLarge(QueryFailure, ResourceExhausted):
    """A single row is larger than a whole result may be."""

    default_reason = "RESULT_TOO_LARGE"

    def __init__(self, max_bytes: int) -> None:
        super().__init__(
            f"One row exceeds {max_bytes} bytes; select fewer or shorter columns.",
        )


class DatabaseUnavailable(QueryFailure, Unavailable):
    """The database does not answer, refuses the connection or ends the session."""

    default_reason = "DATABASE_UNAVAILABLE"

    def __init__(self, cause: str = "") -> None:
        """An error whose text names the cause, if one is known; it must be safe to show."""
        super().__init__(f"The database cannot be reached{cause and ': '}{cause}.")


class RoleUnavailable(QueryFailure, FailedPrecondition):
    """The role that reads for the caller's groups is not there, or may not be taken on."""

    default_reason = "DATABASE_ROLE_UNAVAILABLE"
    error_type = AgentErrorType.CONFIGURATION_ERROR

    def __init__(self) -> None:
        super().__init__(
            "The database cannot be read for your groups: the role that an operator has given them "
            "(database_role in BOS_ACCESS_GROUPS) cannot be taken on. Grant it to the user of the "
            "connection."
        )


class NothingReadable(QueryFailure, PermissionDenied):
    """The caller's groups may not read a table of any database."""

    default_reason = "NOTHING_READABLE"

    def __init__(self) -> None:
        super().__init__("You may not read any table. Ask an administrator for a group that may.")


class FilesNotOpen(QueryFailure, FailedPrecondition):
    """The files service does not accept the run token of the step."""

    default_reason = "FILES_NOT_OPEN"
    error_type = AgentErrorType.CONFIGURATION_ERROR

    def __init__(self) -> None:
        super().__init__(
            "Uploaded files cannot be read: the run token of this step is not for them. Add "
            "file_tables to what the agent may call (BOS_GATEWAY_AGENT_AUDIENCES)."
        )


class DatabaseBusy(QueryFailure, ResourceExhausted):
    """No connection became free in time; users share them."""

    default_reason = "DATABASE_BUSY"

    def __init__(self) -> None:
        super().__init__("All connections to the database are in use.", retry_after_s=1)


class UnknownTable(QueryFailure, NotFound):
    """A table that is not on the allow-list, whether or not it exists."""

    default_reason = "UNKNOWN_TABLE"


class UnknownDatabase(QueryFailure, NotFound):
    """A database name that is not configured."""

    default_reason = "UNKNOWN_DATABASE"
    error_type = AgentErrorType.CONFIGURATION_ERROR
