"""Work limit of one check: what builds on itself takes twice as long with every level."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from bos_sqlguard.growth.sizes import Scope, Source

_STEPS = 20_000
_COLUMNS = 2_000
# A look at a name takes less than a visit.
_LOOKS_PER_STEP = 8
_NODES_READ_PER_STEP = 4


class TooMuchWork(Exception):
    """The bounds of the query are not worked out to their end; it has to be refused."""


class Work:
    """Work done by one check so far, with every look it takes twice."""

    def __init__(self) -> None:
        self.done = 0
        self._read: dict[int, frozenset[str]] = {}

    def spend(self, steps: int) -> None:
        """Count so many steps: parts visited, columns gone through.

        Raises:
            TooMuchWork: they are too many.
        """
        self.done += steps
        if self.done > _STEPS:
            raise TooMuchWork("too many of its parts build on one another")

    def measured(self, source: Source) -> Source:
        """The source, with its columns counted."""
        self.list_of(source.columns)
        self.spend(1 + len(source.columns))
        return source

    def list_of(self, columns: Sequence[object]) -> None:
        """See that a list of columns is not too long to be copied and gone through.

        Raises:
            TooMuchWork: it is.
        """
        if len(columns) > _COLUMNS:
            raise TooMuchWork(f"a list of more than {_COLUMNS:,} columns")

    def look_up(self, scopes: Sequence[Scope]) -> None:
        """Count what looking for a column goes through."""
        sources = [source for scope in scopes for source in scope.values()]
        looks = sum(len(source.columns) for source in sources)
        self.spend(len(sources) + looks // _LOOKS_PER_STEP)

    def mentions(self, query: exp.Expr, name: str) -> bool:
        """Whether a query reads from a source of that name."""
        return name in self.read_by(query)

    def read_by(self, query: exp.Expr) -> frozenset[str]:
        """The names of all sources that a query reads; every query is read once."""
        names = self._read.get(id(query))
        if names is None:
            nodes = list(query.walk())
            self.spend(1 + len(nodes) // _NODES_READ_PER_STEP)
            names = frozenset(node.name.lower() for node in nodes if isinstance(node, exp.Table))
            self._read[id(query)] = names
        return names
