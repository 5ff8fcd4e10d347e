"""MCP agent: the tools of any MCP server as a specialist, without code."""
