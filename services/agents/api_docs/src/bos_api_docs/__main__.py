"""Process entry of the API agent: ``python -m bos_api_docs``."""

from __future__ import annotations

from bos_agentkit import serve_agent
from bos_api_docs.card import NAME
from bos_api_docs.service import serve
from bos_api_docs.settings import ApiDocsSettings

if __name__ == "__main__":
    serve_agent(NAME, ApiDocsSettings, serve)
