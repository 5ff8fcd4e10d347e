"""Agents that Bos has, by canonical name, whether or not a deployment runs them. Pure.

The one table of them: agents that run describe themselves, and this says of the others that a name
is right and its agent absent. Other people's agents need no entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from bos.agent.v1 import AgentCard

# made from descriptors (make generate)
_ALIASES: Mapping[str, tuple[str, ...]] = {
    "a2a": (),
    "api_docs": ("api_agent",),
    "charts": ("chart", "chart_builder"),
    "code": ("python",),
    "computation": ("calculator", "UtilityAgent"),
    "files": ("file_agent", "FileSystemTool", "FileDownloaderTool"),
    "mail": (),
    "mcp": (),
    "rag": ("documents_agent",),
    "sql": (),
    "text": ("summariser", "summarizer", "translator"),
    "web": ("ResearchAgent",),
}
# end of what is made

KNOWN_AGENTS: Mapping[str, AgentCard] = MappingProxyType(
    {name: AgentCard(name=name, aliases=aliases) for name, aliases in _ALIASES.items()}
)
"""Cards with names and aliases alone."""
