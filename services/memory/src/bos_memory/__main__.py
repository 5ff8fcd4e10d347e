"""Entry point of ``python -m bos_memory``."""

from __future__ import annotations

from bos_chassis.process import main
from bos_llm import open_models
from bos_memory.service import migrate_store, serve
from bos_memory.settings import MemorySettings

if __name__ == "__main__":
    main("memory", MemorySettings, serve, migrate=migrate_store, models=open_models)
