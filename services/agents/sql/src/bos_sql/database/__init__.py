"""The database as mcp_db shows it: metadata, table lists, query results."""
