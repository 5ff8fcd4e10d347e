"""Collecting rows within limits; shared by the adapters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from bos_mcp_db.backends.backend import Limits
from bos_mcp_db.failures import QueryRefused, ResultTooLarge
from bos_mcp_db.values import size
from bos_sqlguard import load_rules

_MIB = 1024 * 1024


class RowCollector:
    """Keeps rows until a limit is reached; one row beyond the limit shows that there were more."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._bytes = 0
        self.rows: list[list[Any]] = []
        self.truncated = False

    @property
    def wanted(self) -> int:
        """Number of rows still worth fetching; 0 when done."""
        return 0 if self.truncated else self._limits.max_rows + 1 - len(self.rows)

    def add(self, rows: Iterable[list[Any]]) -> None:
        """Take ``rows`` in order, as far as they fit.

        Raises:
            ResultTooLarge: the very first row exceeds the limit.
        """
        for row in rows:
            self._bytes += size(row)
            if len(self.rows) >= self._limits.max_rows or self._bytes > self._limits.max_bytes:
                if not self.rows:
                    raise ResultTooLarge(self._limits.max_bytes)
                self.truncated = True
                return
            self.rows.append(row)


def check_columns(count: int, limits: Limits) -> None:
    """Refuse a result with too many columns; a star shows its width only now.

    Raises:
        QueryRefused: more than ``limits.max_columns``.
    """
    if count > limits.max_columns:
        _refuse("TOO_MANY_COLUMNS", f"{count}, at most {limits.max_columns}")


def check_cost(estimated: float, limits: Limits) -> None:
    """Refuse a query that the database expects to be expensive.

    Raises:
        QueryRefused: more than ``limits.max_estimated_cost``.
    """
    at_most = limits.max_estimated_cost
    if at_most is not None and estimated > at_most:
        _refuse("TOO_EXPENSIVE", f"an estimated cost of {estimated:,.0f}, at most {at_most:,.0f}")


def check_kept(estimated: float, limits: Limits) -> None:
    """Refuse a query whose aggregates would hold too many values at once.

    Raises:
        QueryRefused: more than ``limits.max_kept_bytes``.
    """
    at_most = limits.max_kept_bytes
    if at_most is not None and estimated > at_most:
        _refuse(
            "TOO_MUCH_KEPT",
            f"an estimated {estimated / _MIB:,.0f} MiB, at most {at_most / _MIB:,.0f}",
        )


def _refuse(rule: str, detail: str) -> NoReturn:
    violation = load_rules()[rule].violation(detail)
    raise QueryRefused(f"The query was refused: {violation.message}.", [violation])


def clock(seconds: int) -> str:
    """``HH:MM:SS`` as databases write times; hours may be more than 23."""
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
