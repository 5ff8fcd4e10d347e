"""Card of the files agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos_agentkit import agent_card

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bos.agent.v1 import AgentCard
    from bos_agentkit import AgentTool

NAME = "files"

KEYWORDS = (
    "pdf",
    "excel",
    "xlsx",
    "csv",
    "spreadsheet",
    "my files",
    "files do i have",
    "workspace",
    "save as",
    "save it as",
    "to a file",
    "into a file",
    "text file",
    "download http",
    "delete the file",
    "rename the file",
)
"""Substrings of questions that speak for this agent."""

_SELECTION_GROUP = 3


def files_card(tools: Iterable[AgentTool]) -> AgentCard:
    """Card of this agent, as planner and gateway see it."""
    return agent_card(
        NAME,
        "The user's files; PDF, Excel and CSV of other steps' results; downloads.",
        capabilities=(
            "PDF from text and Markdown in any language",
            "Excel and CSV from rows of other steps",
            "list, read, write, rename and delete files of the user's workspace",
            "download a URL into the workspace",
        ),
        typical_use_cases=(
            "Write these customers to Excel (after a query)",
            "Make a PDF of the answer (after other steps)",
            "Which files do I have?",
        ),
        keywords=KEYWORDS,
        selection_group=_SELECTION_GROUP,
        tools=tools,
        output_fields={
            "name": "name of the file",
            "digest": "sha256: and the digest of its content",
            "version": "number of its version",
            "text": "its text, of text files that were read or written",
            "files": "list of {name, digest, size_bytes, media_type, version}, of a listing",
        },
        default_timeout_s=60,
        max_retries=1,
        latency_budget_s=5,
        aliases=("files_agent", "file_agent", "FileSystemTool", "FileDownloaderTool"),
        version="0.1.0",
    )
