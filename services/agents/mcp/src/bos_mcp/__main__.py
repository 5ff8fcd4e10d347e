"""The MCP agent as a process of its own, for one server of its settings."""

from bos_agentkit import serve_agent
from bos_mcp.service import NAME, serve
from bos_mcp.settings import McpSettings

if __name__ == "__main__":
    serve_agent(NAME, McpSettings, serve)
