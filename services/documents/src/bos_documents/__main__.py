"""Entry point of ``python -m bos_documents``."""

from __future__ import annotations

from bos_chassis.process import main
from bos_documents.service import migrate_store, serve
from bos_documents.settings import DocumentsSettings
from bos_llm import open_models

if __name__ == "__main__":
    main("documents", DocumentsSettings, serve, migrate=migrate_store, models=open_models)
