"""Client of the documents service, with the step's run token."""

from __future__ import annotations

from bos.documents.v1 import (
    DocumentsServiceStub,
    SearchDocumentsRequest,
    SearchDocumentsResponse,
    SearchFilter,
)
from bos_chassis.channels import Channels, translate_rpc_errors

MAX_QUERY_CHARS = 4_096


class Documents:
    """Searches in the documents of the user whose step this is.

    Args:
        channels: Shared by the process; they send the step's run token along.
        target: Where the documents service listens.
        timeout_s: Time of one search.
    """

    def __init__(self, channels: Channels, target: str, *, timeout_s: float) -> None:
        self._stub = DocumentsServiceStub(channels.get(target))
        self._timeout_s = timeout_s

    async def search(
        self, query: str, filter: SearchFilter, *, limit: int, remaining_s: float
    ) -> SearchDocumentsResponse:
        """Passages, best first.

        Raises:
            BosError: of the documents service, or ``Unavailable`` when it cannot be reached.
        """
        request = SearchDocumentsRequest(query=query[:MAX_QUERY_CHARS], filter=filter, limit=limit)
        with translate_rpc_errors():
            return await self._stub.SearchDocuments(
                request, timeout=min(self._timeout_s, remaining_s)
            )
