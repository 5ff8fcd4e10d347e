"""Join graph: shortest paths over foreign keys and curated joins."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bos_sql.grounding.catalog import Join


@dataclass(frozen=True, slots=True)
class JoinPath:
    """Join path from one table to another."""

    tables: tuple[str, ...]
    """Tables from the first to the last."""
    joins: tuple[Join, ...]
    """Conditions, one per pair of neighbours."""

    @property
    def text(self) -> str:
        """Text of the path, tables and conditions, one line."""
        conditions = " AND ".join(join.condition for join in self.joins)
        return f"{' → '.join(self.tables)}: {conditions}"


class JoinGraph:
    """Undirected graph of tables and their joins.

    Args:
        joins: Paths use the first join of two tables.
    """

    def __init__(self, joins: Iterable[Join]) -> None:
        self._edges: dict[str, dict[str, Join]] = {}
        for join in joins:
            if join.table != join.other:
                self._edges.setdefault(join.table, {}).setdefault(join.other, join)
                self._edges.setdefault(join.other, {}).setdefault(join.table, join)

    def path(
        self,
        start: Collection[str],
        goal: str,
        *,
        max_joins: int,
        preferred: Sequence[str] = (),
    ) -> JoinPath | None:
        """Shortest path from any table of ``start`` to ``goal``; None if there is none.

        Ties are broken by the order of ``preferred`` tables.
        """
        rank = {table: place for place, table in enumerate(preferred)}
        previous: dict[str, str | None] = dict.fromkeys(start)
        waiting = deque((table, 0) for table in start)
        while waiting:
            table, steps = waiting.popleft()
            if table == goal:
                return self._path_to(previous, goal)
            if steps == max_joins:
                continue
            others = self._edges.get(table, ())
            for other in sorted(others, key=lambda each: rank.get(each, len(rank))):
                if other not in previous:
                    previous[other] = table
                    waiting.append((other, steps + 1))
        return None

    def connect(
        self, tables: Sequence[str], *, max_joins: int, preferred: Sequence[str] = ()
    ) -> list[JoinPath]:
        """Paths that connect each table to the ones before it, where there are any."""
        connected: dict[str, None] = dict.fromkeys(tables[:1])
        paths = []
        for table in tables[1:]:
            if table in connected:
                continue
            path = self.path(connected, table, max_joins=max_joins, preferred=preferred)
            if path is not None:
                paths.append(path)
                connected.update(dict.fromkeys(path.tables))
            else:
                # Not connected so far; later tables may connect to it.
                connected[table] = None
        return paths

    def _path_to(self, previous: dict[str, str | None], goal: str) -> JoinPath:
        tables = [goal]
        while (before := previous[tables[-1]]) is not None:
            tables.append(before)
        tables.reverse()
        joins = tuple(self._edges[one][other] for one, other in pairwise(tables))
        return JoinPath(tuple(tables), joins)
