"""``python -m bos_rag``: the document agent as a process of its own."""

from __future__ import annotations

from bos_agentkit import serve_agent
from bos_rag.card import NAME
from bos_rag.service import serve
from bos_rag.settings import RagSettings

if __name__ == "__main__":
    serve_agent(NAME, RagSettings, serve)
