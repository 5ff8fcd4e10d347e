"""HTTP server around the MCP server: TLS, time limits, callers, health."""
