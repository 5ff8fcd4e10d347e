"""Access to the database through mcp_db: metadata, table overview, query results."""
