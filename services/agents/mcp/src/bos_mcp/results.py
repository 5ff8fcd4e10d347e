"""Result of a tool: text, rows, files and links, within bounds. All of it is content of others."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

from mcp.types import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from bos_agentkit.foreign import ContentReader, ForeignContent, plain_text

if TYPE_CHECKING:
    from mcp.types import CallToolResult

    from bos_agentkit import AgentTask
    from bos_mcp.settings import McpServer

_MAX_BLOCKS = 200


class ToolResult(ForeignContent):
    """What a tool returned."""

    tool: str


def result_of(task: AgentTask, tool: str, result: CallToolResult, server: McpServer) -> ToolResult:
    """Take a result over; its images, sounds and resources become files of the step."""
    reader = ContentReader(
        task, max_chars=server.max_result_chars, max_rows=server.max_rows, stem=tool
    )
    for block in result.content[:_MAX_BLOCKS]:
        _take(reader, block)
    reader.truncated = reader.truncated or len(result.content) > _MAX_BLOCKS
    found = reader.content(result.structured_content)
    return ToolResult(tool=tool, **dict(found))


def error_text(result: CallToolResult) -> str:
    """What a tool says about its failure, plain and on one line."""
    said = " ".join(each.text for each in result.content[:20] if isinstance(each, TextContent))
    return plain_text(said, 500)


def _take(reader: ContentReader, block: object) -> None:
    match block:
        case TextContent():
            reader.add_text(block.text)
        case ImageContent() | AudioContent():
            _file(reader, "", block.mime_type, block.data)
        case EmbeddedResource(resource=TextResourceContents() as resource):
            reader.add_text(resource.text)
        case EmbeddedResource(resource=BlobResourceContents() as resource):
            _file(reader, str(resource.uri), resource.mime_type or "", resource.blob)
        case ResourceLink():
            # Named and not fetched: it may lead anywhere.
            title = plain_text(block.title or block.name, 200)
            reader.add_text(f"{title}: {plain_text(str(block.uri), 500)}")
        case _:
            reader.truncated = True


def _file(reader: ContentReader, uri: str, media_type: str, data: str) -> None:
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        reader.truncated = True
        return
    reader.add_file(uri, media_type, content)
