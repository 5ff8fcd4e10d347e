"""Process entry of the computation agent: ``python -m bos_computation``."""

from __future__ import annotations

from bos_agentkit import serve_agent
from bos_computation.card import NAME
from bos_computation.service import serve
from bos_computation.settings import ComputationSettings

if __name__ == "__main__":
    serve_agent(NAME, ComputationSettings, serve)
