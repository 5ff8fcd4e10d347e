"""MCP servers of others, from the npm registry, as their authors publish them."""

import shutil
from pathlib import Path

_INSTALLED = Path(__file__).parents[4] / ".cache" / "mcp-servers"


def community_server(name: str, *arguments: str) -> list[str]:
    node = shutil.which("node")
    module = f"node_modules/@modelcontextprotocol/server-{name}/dist/index.js"
    assert node is not None, "the tests of MCP servers need Node.js 20 or newer"
    assert (_INSTALLED / module).exists(), "run `make mcp-servers` once."
    return [node, str(_INSTALLED / module), *arguments]
