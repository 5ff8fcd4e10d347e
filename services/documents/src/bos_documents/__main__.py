"""Entry point of ``python -m bos_documents``."""

from __future__ import annotations

from bos_chassis.process import main
from bos_documents.service import serve
from bos_documents.settings import DocumentsSettings
from bos_llm import open_models

if __name__ == "__main__":
    main("documents", DocumentsSettings, serve, models=open_models)
