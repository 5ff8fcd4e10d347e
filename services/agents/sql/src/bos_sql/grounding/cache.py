"""Indexes that are kept: one per shape of a database, for a while."""

from __future__ import annotations

import asyncio
import time
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bos_sql.grounding.index import MetadataIndex

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bos_sql.grounding.catalog import Catalog
    from bos_sql.grounding.curated import Curated

_KEPT = 8

Key = tuple[str, str]
"""Name of the database, and the fingerprint of its schema."""


@dataclass(frozen=True, slots=True)
class _Kept:
    index: MetadataIndex
    until: float


class MetadataIndexes:
    """Builds indexes and keeps the latest eight.

    A changed schema has another fingerprint and so another index. What may be as old as
    ``ttl_s`` are sample values and row estimates, which ground a query and never answer one.

    Args:
        curated: The curated file; None: there is none.
        ttl_s: How long an index is used; 0 keeps none.
        clock: Seconds that only grow.
    """

    def __init__(
        self,
        curated: Curated | None,
        *,
        ttl_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._curated = curated
        self._ttl_s = ttl_s
        self._clock = clock
        self._kept: dict[Key, _Kept] = {}
        # Gone as soon as nobody builds the index or waits for it.
        self._building: weakref.WeakValueDictionary[Key, asyncio.Lock] = (
            weakref.WeakValueDictionary()
        )

    def keeps(self, fingerprint: str) -> bool:
        """Whether an index for this fingerprint is there for the next who asks."""
        return bool(fingerprint) and self._ttl_s > 0

    async def get(
        self, database: str, fingerprint: str, load: Callable[[], Awaitable[Catalog]]
    ) -> MetadataIndex:
        """The index of ``database`` as it is now.

        Args:
            database: Its name.
            fingerprint: Of its schema; empty: unknown, so nothing is kept.
            load: Describes the database; called if there is no index for this fingerprint.

        Raises:
            ConfigurationError: the curated file does not fit the database; names the line.
        """
        if not self.keeps(fingerprint):
            return await self._built(await load())
        key = (database, fingerprint)
        if (index := self._fresh(key)) is not None:
            return index
        # One at a time: whoever waited for the same index finds it there, and other databases are
        # not waited for. If the one before gave up, the next describes the database itself.
        building = self._building.setdefault(key, asyncio.Lock())
        async with building:
            if (index := self._fresh(key)) is not None:
                return index
            index = await self._built(await load())
            self._kept.pop(key, None)
            self._kept[key] = _Kept(index, self._clock() + self._ttl_s)
            while len(self._kept) > _KEPT:
                del self._kept[next(iter(self._kept))]
            return index

    def _fresh(self, key: Key) -> MetadataIndex | None:
        kept = self._kept.get(key)
        return kept.index if kept is not None and self._clock() < kept.until else None

    async def _built(self, catalog: Catalog) -> MetadataIndex:
        return await asyncio.to_thread(self._build, catalog)

    def _build(self, catalog: Catalog) -> MetadataIndex:
        return MetadataIndex(self._curated.applied_to(catalog) if self._curated else catalog)
