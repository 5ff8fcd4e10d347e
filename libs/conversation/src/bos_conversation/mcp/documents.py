"""The tool that searches the user's documents."""

from __future__ import annotations

from typing import Annotated, Any

from mcp.server.mcpserver import Context
from mcp.types import CallToolResult
from pydantic import Field

from bos.documents.v1 import Passage
from bos_conversation.mcp.callers import Callers
from bos_conversation.mcp.results import bounded, json_result
from bos_plainjson import plain_json

_MAX_PASSAGE_CHARS = 4000


class Documents:
    """The tool that searches documents, for the caller of each request."""

    def __init__(self, callers: Callers) -> None:
        self._callers = callers

    async def search_documents(
        self,
        context: Context[Any, Any],
        query: Annotated[
            str, Field(min_length=1, max_length=4096, description="Plain language or exact terms")
        ],
        limit: Annotated[int, Field(ge=1, le=50, description="Most passages")] = 10,
    ) -> CallToolResult:
        """Find passages in the user's own documents, best first."""
        client = self._callers.documents(context.request_context.request)
        found = await client.search(query, limit=limit)
        content = {
            "passages": [_passage(each) for each in found.passages],
            "documents_searched": found.documents_searched,
            "coverage": found.coverage,
            "tainted": True,
        }
        return json_result(content, tainted=True)


def _passage(passage: Passage) -> dict[str, Any]:
    chunk = plain_json(passage.chunk)
    kept = ("chunk_id", "document_id", "document_name", "first_page", "last_page", "section_path")
    text = bounded(passage.chunk.text, _MAX_PASSAGE_CHARS)
    return {**{name: chunk[name] for name in kept}, "text": text, "score": passage.score}
