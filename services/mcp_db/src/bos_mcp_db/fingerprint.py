"""Fingerprint of the schema of all readable tables, so that callers notice when it changes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict

from bos_mcp_db.backends.backend import TableInfo


def schema_fingerprint(tables: Sequence[TableInfo], role: str = "") -> str:
    """Return a digest of names, types, keys and comments; rows and their number leave it alone.

    Callers keep what they learn under it, sample values included, so a ``role`` that reads for them
    counts as well: it may see other rows than the next.
    """
    shapes = [{**asdict(table), "row_estimate": None} for table in tables]
    text = json.dumps(shapes, ensure_ascii=True, separators=(",", ":"), sort_keys=True)
    text += f"\n{role}" if role else ""
    return hashlib.sha256(text.encode()).hexdigest()[:32]
