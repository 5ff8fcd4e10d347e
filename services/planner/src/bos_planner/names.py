"""Agent names as people and models write them, to the canonical ones (SPEC A-03, A-08). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

_SUFFIX = "_agent"


def canonical_name(name: str, known: Collection[str]) -> str | None:
    """The one of ``known`` that ``name`` means, or None.

    Case and surrounding space do not matter, and ``rag_agent`` means ``rag``.
    """
    written = name.strip().lower()
    for candidate in (written, written.removesuffix(_SUFFIX)):
        if candidate in known:
            return candidate
    return None


def canonical_names(names: Iterable[str], known: Collection[str]) -> tuple[list[str], list[str]]:
    """Split ``names`` into canonical ones, first position kept, and those nobody is called."""
    found: dict[str, None] = {}
    unknown: dict[str, None] = {}
    for name in names:
        canonical = canonical_name(name, known)
        if canonical is not None:
            found[canonical] = None
        elif name.strip():
            unknown[name.strip()] = None
    return list(found), list(unknown)
