"""``python -m bos_web``: the web agent as a process of its own."""

from __future__ import annotations

from bos_agentkit import serve_agent
from bos_web.card import NAME
from bos_web.service import serve
from bos_web.settings import WebSettings

if __name__ == "__main__":
    serve_agent(NAME, WebSettings, serve)
