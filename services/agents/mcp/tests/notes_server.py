"""An MCP server with tools that read and that write; over stdio if it is run as a program."""

import base64
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
from mcp.server.mcpserver import Image, MCPServer
from mcp.types import (
    CallToolResult,
    EmbeddedResource,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)

READS = ToolAnnotations(read_only_hint=True)
IDEMPOTENT = ToolAnnotations(idempotent_hint=True, destructive_hint=False)
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def build(folder: Path) -> MCPServer:
    """The server; its notes are the files of ``folder``."""
    server = MCPServer("notes")

    @server.tool(annotations=READS)
    def read_note(name: str) -> str:
        """Read a note by its name."""
        return (folder / f"{name}.txt").read_text("utf-8")

    @server.tool(annotations=READS)
    def list_notes() -> list[dict[str, Any]]:
        """List all notes with their sizes."""
        files = sorted(folder.glob("*.txt"))
        return [{"name": each.stem, "bytes": each.stat().st_size} for each in files]

    @server.tool()
    def write_note(name: str, text: str) -> str:
        """Write a note; one of the same name is replaced."""
        with (folder / f"{name}.txt").open("a", encoding="utf-8") as file:
            file.write(text)
        return f"Wrote {name}."

    @server.tool(annotations=IDEMPOTENT)
    def pin_note(name: str, colour: str = "red") -> str:
        """Pin a note."""
        return f"Pinned {name} in {colour}."

    @server.tool(annotations=READS)
    def fail() -> CallToolResult:
        """Report an error."""
        said = TextContent(type="text", text="No note <b>gone</b>.")
        return CallToolResult(content=[said], is_error=True)

    @server.tool(annotations=READS, structured_output=False)
    def picture() -> Any:
        """A picture, a text, a resource and a link."""
        return [
            Image(data=PIXEL, format="png"),
            TextContent(type="text", text="One pixel."),
            EmbeddedResource(
                type="resource",
                resource=TextResourceContents(
                    uri="note://x", text="Inner text.", mime_type="text/plain"
                ),
            ),
            ResourceLink(type="resource_link", name="The manual", uri="https://example.com/manual"),
        ]

    @server.tool(annotations=READS)
    async def wait_indefinitely() -> str:
        """Never answer."""
        await anyio.sleep_forever()
        raise AssertionError

    @server.tool(annotations=READS, name="environment")
    def environment() -> dict[str, str]:
        """What the program sees of its environment."""
        return dict(os.environ)

    @server.tool(annotations=READS)
    def start_child() -> int:
        """Start a program that outlives calls."""
        return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid

    @server.tool(annotations=READS)
    def exit_now() -> str:
        """End the program."""
        os._exit(3)

    return server


if __name__ == "__main__":
    build(Path(sys.argv[1])).run()
