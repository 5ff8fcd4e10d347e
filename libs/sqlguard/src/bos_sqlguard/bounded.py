"""A sqlglot parser that gives up: some short nested inputs make it backtrack without end."""

from __future__ import annotations

from sqlglot.parser import Parser


class TooComplex(Exception):
    """Reading the query takes far more work than its length explains.

    Not a ParseError: those are caught where the parser tries alternatives.
    """


class BoundedParser(Parser):
    """Mix it in before a dialect's parser, and call :meth:`allow` before parsing."""

    _steps_left = 0

    def allow(self, steps: int) -> None:
        """Set how many steps parsing may take."""
        self._steps_left = steps

    def _advance(self, times: int = 1) -> None:
        self._steps_left -= 1
        if self._steps_left < 0:
            raise TooComplex
        super()._advance(times)

    def _warn_unsupported(self) -> None:
        """Say nothing: such a statement is refused, and logs are no place for queries."""
