"""Process entry of the charts agent: ``python -m bos_charts``."""

from __future__ import annotations

from bos_agentkit import serve_agent
from bos_charts.card import NAME
from bos_charts.service import serve
from bos_charts.settings import ChartsSettings

if __name__ == "__main__":
    serve_agent(NAME, ChartsSettings, serve)
