"""Why a file cannot be read as tables: text that a user may see."""

from __future__ import annotations


class FileRejected(Exception):
    """A file that is no table, or one beyond its limits; the text says why."""
