"""The A2A agent as a process of its own, for one remote agent of its settings."""

from bos_a2a.service import NAME, serve
from bos_a2a.settings import A2aSettings
from bos_agentkit import serve_agent

if __name__ == "__main__":
    serve_agent(NAME, A2aSettings, serve)
