"""Entry point of ``python -m bos_files``."""

from __future__ import annotations

from bos_agentkit import serve_agent
from bos_files.card import NAME
from bos_files.service import migrate_store, serve
from bos_files.settings import FilesSettings

if __name__ == "__main__":
    serve_agent(NAME, FilesSettings, serve, migrate=migrate_store)
