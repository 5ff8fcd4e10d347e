"""``python -m bos_code``: the code agent as a process of its own."""

from __future__ import annotations

from bos_agentkit import serve_agent
from bos_code.card import NAME
from bos_code.service import serve
from bos_code.settings import CodeSettings

if __name__ == "__main__":
    serve_agent(NAME, CodeSettings, serve)
