"""Runs, their tables and files as resources."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError
from mcp.types import ListResourcesResult, Resource

from bos_client.text import files_of, one_line
from bos_conversation.mcp.results import run_uri, status_word
from bos_plainjson import plain_json

if TYPE_CHECKING:
    from bos.gateway.v1 import Run
    from bos_client.client import BosClient
    from bos_conversation.mcp.callers import Callers

MAX_FILE_BYTES = 8 * 1024 * 1024
MAX_JSON_CHARS = 4 * 1024 * 1024
_LISTED = 20
_MAX_NAME_CHARS = 100
_JSON = "application/json"


class Resources:
    """The resources, for the caller of each request."""

    def __init__(self, callers: Callers) -> None:
        self._callers = callers

    async def run(self, context: Context[Any, Any], run_id: str) -> str:
        """A run as plain JSON: question, plan, response."""
        return _written(plain_json(await self._run(context, run_id)))

    async def table(self, context: Context[Any, Any], run_id: str) -> str:
        """The whole table of a run: columns with types, and rows."""
        run = await self._run(context, run_id)
        if not run.response.HasField("data"):
            raise ResourceNotFoundError("This run has no table.")
        return _written(plain_json(run.response.data))

    async def file(self, context: Context[Any, Any], run_id: str, digest: str) -> bytes:
        """A file that a run made. Its content and its name are a program's work."""
        run = await self._run(context, run_id)
        wanted = f"sha256:{digest.removeprefix('sha256:')}"
        file = next((each for each in files_of(run.response) if each.digest == wanted), None)
        if file is None:
            raise ResourceNotFoundError("This run has no such file.")
        if file.size_bytes > MAX_FILE_BYTES:
            raise ResourceError(
                f"The file has {file.size_bytes} bytes, more than the {MAX_FILE_BYTES} that a"
                " resource may have; get it by `bos runs files` or at /v1/runs."
            )
        return await self._bos(context.request_context.request).download_file(run_id, wanted)

    async def latest(self, request: Any, cursor: str) -> ListResourcesResult:
        """A page of the caller's runs, newest first."""
        listed = await self._bos(request).list_runs(page_size=_LISTED, page_token=cursor)
        return ListResourcesResult(
            resources=[_resource(run) for run in listed.runs],
            next_cursor=listed.next_page_token or None,
        )

    async def _run(self, context: Context[Any, Any], run_id: str) -> Run:
        return await self._bos(context.request_context.request).get_run(run_id)

    def _bos(self, request: Any) -> BosClient:
        return self._callers.bos(request)


def _resource(run: Run) -> Resource:
    name = one_line(run.question, _MAX_NAME_CHARS) or run.run_id
    return Resource(
        name=name, uri=run_uri(run.run_id), description=status_word(run.status), mime_type=_JSON
    )


def _written(content: Any) -> str:
    text = json.dumps(content, ensure_ascii=False)
    if len(text) > MAX_JSON_CHARS:
        raise ResourceError("This is too large for a resource; get it at /v1/runs.")
    return text
