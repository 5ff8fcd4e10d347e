"""Protocols: Bos for clients of the OpenAI API, of MCP and of A2A."""
