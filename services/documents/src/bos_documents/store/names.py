"""Names of files as they are shown and stored; pure."""

from __future__ import annotations

import unicodedata
from typing import Final

_MAX_CHARS: Final = 255
# Marks that change the direction of what follows: a name must not read as another one.
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def shown_name(given: str) -> str:
    """A file name without folders and without characters that cannot be seen.

    Long names lose their middle, so that the ending stays; a name of which nothing is left is
    ``document``.
    """
    last = given.replace("\\", "/").rstrip("/").rpartition("/")[2]
    composed = unicodedata.normalize("NFC", last)
    seen = "".join(" " if unicodedata.category(c) in _HIDDEN else c for c in composed)
    name = " ".join(seen.split())
    if not name.strip(". "):
        return "document"
    if len(name) > _MAX_CHARS:
        name = name[: _MAX_CHARS - 33] + "…" + name[-32:]
    return name
