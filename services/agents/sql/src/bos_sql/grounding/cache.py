"""Cache of metadata indexes, by database and schema fingerprint."""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bos_sql.grounding.catalog import Catalog
from bos_sql.grounding.curated import Curated
from bos_sql.grounding.index import MetadataIndex

_MAX_INDEXES = 8

Key = tuple[str, str, bool]
"""Name of the database, fingerprint of its schema, and whether the curated file is applied."""


@dataclass(frozen=True, slots=True)
class _Kept:
    index: MetadataIndex
    until: float


class MetadataIndexes:
    """Builds metadata indexes and caches the latest eight.

    A changed schema has another fingerprint and so another index. Only sample values and row
    estimates may be as old as ``ttl_s``; they ground queries and are never answers.

    Args:
        curated: The curated file; None: there is none.
        ttl_s: Time to live of an index; 0 disables the cache.
        clock: Monotonic time in seconds.
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
        # A lock lives while a step builds the index or waits for it.
        self._building: weakref.WeakValueDictionary[Key, asyncio.Lock] = (
            weakref.WeakValueDictionary()
        )

    def keeps(self, fingerprint: str) -> bool:
        """Whether indexes with this fingerprint are cached: it is known and the cache enabled."""
        return bool(fingerprint) and self._ttl_s > 0

    async def get(
        self,
        database: str,
        fingerprint: str,
        load: Callable[[], Awaitable[Catalog]],
        *,
        curated: bool = True,
    ) -> MetadataIndex:
        """Index of ``database``, cached or built.

        Args:
            database: Its name.
            fingerprint: Of its schema; empty: unknown, so that nothing is cached.
            load: Reads the catalogue; called if no index for this fingerprint is cached.
            curated: Apply the curated file, if there is one.

        Raises:
            ConfigurationError: the curated file names what the database lacks; names the line.
        """
        if not self.keeps(fingerprint):
            return await self._built(await load(), curated)
        key = (database, fingerprint, curated)
        if (index := self._fresh(key)) is not None:
            return index
        # One build per index: the steps that waited find it cached, and other databases do not
        # wait. If the build is cancelled or fails, the next step starts its own.
        building = self._building.setdefault(key, asyncio.Lock())
        async with building:
            if (index := self._fresh(key)) is not None:
                return index
            index = await self._built(await load(), curated)
            self._kept.pop(key, None)
            self._kept[key] = _Kept(index, self._clock() + self._ttl_s)
            while len(self._kept) > _MAX_INDEXES:
                del self._kept[next(iter(self._kept))]
            return index

    def _fresh(self, key: Key) -> MetadataIndex | None:
        kept = self._kept.get(key)
        return kept.index if kept is not None and self._clock() < kept.until else None

    async def _built(self, catalog: Catalog, curated: bool) -> MetadataIndex:
        return await asyncio.to_thread(self._build, catalog, self._curated if curated else None)

    @staticmethod
    def _build(catalog: Catalog, curated: Curated | None) -> MetadataIndex:
        return MetadataIndex(curated.applied_to(catalog) if curated else catalog)
