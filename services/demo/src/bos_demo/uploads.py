"""Files that the user of the demo has uploaded to the workspace: tables to ask about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bos_demo.documents.rendering import render
from bos_demo.documents.sources import load_sources

_SOURCES: Final[Mapping[str, str]] = {"spares-2026.csv": "Price list spares 2026.csv"}
"""File of the workspace, and the document of the company that it is."""


def sample_uploads() -> dict[str, bytes]:
    """Return the content of each file by its name; the same bytes at every call."""
    sources = {source.name: source for source in load_sources()}
    return {name: render(sources[source]) for name, source in _SOURCES.items()}
