"""Process entry of the text agent: ``python -m bos_text``."""

from __future__ import annotations

from bos_agentkit import serve_agent
from bos_text.card import NAME
from bos_text.service import serve
from bos_text.settings import TextSettings

if __name__ == "__main__":
    serve_agent(NAME, TextSettings, serve)
