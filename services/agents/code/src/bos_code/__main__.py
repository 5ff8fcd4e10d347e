"""Process entry of the code agent: ``python -m bos_code``."""

from __future__ import annotations

from bos_agentkit import serve_agent
from bos_code.card import NAME
from bos_code.service import serve
from bos_code.settings import CodeSettings

if __name__ == "__main__":
    serve_agent(NAME, CodeSettings, serve)
