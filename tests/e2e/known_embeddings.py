"""Embeddings of passages that this machine has embedded before, by the shipped model."""

import hashlib
import os
import sqlite3
from array import array
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from bos_documents.embedding.local import LocalEmbedder
from bos_documents.embedding.port import Vector

_CACHE = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
FILE = Path(os.environ.get("BOS_CACHE") or Path(_CACHE, "bos")) / "embeddings.sqlite"
"""In the folder that all clones share; read here, before variables of the product are removed."""


@contextmanager
def known_embeddings(file: Path = FILE) -> Iterator[None]:
    """Passages whose embedding the file holds are not embedded again; others are added to it."""
    embedded = LocalEmbedder.embed_passages
    file.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(file, timeout=60)) as store, pytest.MonkeyPatch.context() as patch:
        store.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB)")

        async def embed_passages(self: LocalEmbedder, texts: Sequence[str]) -> list[Vector]:
            keys = {
                text: hashlib.sha256(f"{self.model} {text}".encode()).digest() for text in texts
            }
            found = {}
            for text, key in keys.items():
                row = store.execute("SELECT vector FROM vectors WHERE key = ?", (key,)).fetchone()
                if row is not None:
                    found[text] = tuple(array("f", row[0]))
            missing = [text for text in keys if text not in found]
            made = dict(zip(missing, await embedded(self, missing), strict=True))
            rows = [(keys[text], array("f", vector).tobytes()) for text, vector in made.items()]
            with store:
                store.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?)", rows)
            return [(found | made)[text] for text in texts]

        patch.setattr(LocalEmbedder, "embed_passages", embed_passages)
        yield
