"""Client of the tables of files, with the run token of the step that asks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bos.files.v1 import (
    FileTableServiceStub,
    ListFileTablesRequest,
    ListFileTablesResponse,
    QueryFileTablesRequest,
    QueryFileTablesResponse,
)
from bos_chassis.channels import Channels, translate_rpc_errors
from bos_errors import (
    BosError,
    DeadlineExceeded,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
)
from bos_mcp_db.backends.backend import Limits
from bos_mcp_db.failures import (
    DatabaseBusy,
    DatabaseUnavailable,
    FilesNotOpen,
    QueryFailed,
    QueryRefused,
    QueryTimedOut,
)

_LIST_S = 12.0
"""For the list of tables; a file is read when it is first listed."""
_ANSWER_S = 2.0
"""For the way of an answer, beyond the time of its query."""
# What another query avoids: too much memory, or a file that is no table after all.
_MENDABLE = frozenset({"QUERY_FAILED", "QUERY_TOO_LARGE", "FILE_NOT_READABLE"})


class FileTables:
    """Tables of the files of the user on whose behalf this service is called.

    Args:
        channels: Of this service; they send the run token of the call in progress along.
        target: Where the files service listens.
    """

    def __init__(self, channels: Channels, target: str) -> None:
        self._stub = FileTableServiceStub(channels.get(target))

    async def list(self) -> ListFileTablesResponse:
        """All tables of the user, with their columns.

        Raises:
            DatabaseUnavailable: the files service does not answer.
            FilesNotOpen: it does not accept the run token.
        """
        with _translated(_LIST_S):
            return await self._stub.ListFileTables(ListFileTablesRequest(), timeout=_LIST_S)

    async def query(self, sql: str, limits: Limits) -> QueryFileTablesResponse:
        """Run one query; cancelling the call ends its process there.

        Raises:
            QueryFailure: as the files service says.
        """
        request = QueryFileTablesRequest(
            sql=sql,
            max_rows=limits.max_rows,
            max_columns=limits.max_columns,
            max_bytes=limits.max_bytes,
        )
        with _translated(limits.timeout_s):
            return await self._stub.QueryFileTables(request, timeout=limits.timeout_s + _ANSWER_S)


@contextmanager
def _translated(timeout_s: float) -> Iterator[None]:
    """Failures of the files service as those of a database."""
    try:
        with translate_rpc_errors():
            yield
    except BosError as error:
        raise _as_failure(error, timeout_s) from error


def _as_failure(error: BosError, timeout_s: float) -> BosError:
    if error.reason in _MENDABLE:
        return QueryFailed(error.message)
    match error:
        case PermissionDenied():
            return QueryRefused(error.message, ())
        case DeadlineExceeded():
            return QueryTimedOut(timeout_s)
        case ResourceExhausted():
            return DatabaseBusy()
        case Unauthenticated():
            return FilesNotOpen()
        case Unavailable():
            return DatabaseUnavailable()
    return error
