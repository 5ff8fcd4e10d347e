"""One MCP server: transports, connection, its tools as it lists them."""
