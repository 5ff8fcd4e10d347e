"""Content of systems of others (MCP servers, remote agents): texts made plain, results bounded."""

from bos_agentkit.foreign.content import ContentReader, ForeignContent, parsed_json
from bos_agentkit.foreign.failures import CallFailed
from bos_agentkit.foreign.texts import is_plain, plain_text

__all__ = ["CallFailed", "ContentReader", "ForeignContent", "is_plain", "parsed_json", "plain_text"]
