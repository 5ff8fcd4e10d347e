"""Translation of a query into another SQL dialect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.errors import ErrorLevel, SqlglotError

from bos_sql.dialects.kinds import Kinds
from bos_sql.dialects.known_wrong import known_wrong
from bos_sql.dialects.portable import unportable
from bos_sql.dialects.reading import read_query

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bos_sql.grounding.catalog import Table
    from bos_sqlguard import Dialect

# Between these and the others only what is known to be the same is translated.
_PORTABLE_ALONE: frozenset[Dialect] = frozenset({"duckdb", "mysql"})
_NEVER_NULL = (exp.Count, exp.RowNumber, exp.Rank, exp.DenseRank, exp.Literal)


@dataclass(frozen=True, slots=True)
class Translation:
    """A query in another dialect, or the reason why it is withheld."""

    sql: str = ""
    withheld: str = ""
    """Reason why it is withheld."""


def translate(sql: str, source: Dialect, target: Dialect, tables: Iterable[Table]) -> Translation:
    """Translate ``sql`` into another dialect; the guard has not checked the result.

    Args:
        sql: The query, approved by the guard.
        source: Its dialect.
        target: The dialect to write.
        tables: Tables that it reads.
    """
    kinds = Kinds(tables)
    try:
        tree = read_query(sql, source)
        if reason := known_wrong(tree, kinds, source, target):
            return Translation(withheld=reason)
        if _PORTABLE_ALONE & {source, target} and (reason := unportable(tree, kinds)):
            return Translation(withheld=reason)
        if target == "tsql":
            tree = _for_sql_server(tree, kinds, nulls_last=source == "postgres")
        return Translation(tree.sql(dialect=target, unsupported_level=ErrorLevel.RAISE))
    except (SqlglotError, RecursionError, ValueError) as error:
        return Translation(withheld=f"cannot be translated ({type(error).__name__})")


def _for_sql_server(tree: exp.Expr, kinds: Kinds, *, nulls_last: bool) -> exp.Expr:
    """Rewrite for SQL Server what sqlglot leaves unchanged: groups and NULL order."""
    for select in list(tree.find_all(exp.Select)):
        _write_out_groups(select, kinds)
        if nulls_last:
            _sort_nulls_last(select, select.args.get("order"))
            for window in select.find_all(exp.Window):
                if window.parent_select is select:
                    _sort_nulls_last(select, window.args.get("order"))
    return tree


def _write_out_groups(select: exp.Select, kinds: Kinds) -> None:
    """Replace positions and aliases in GROUP BY, which SQL Server does not support."""
    group = select.args.get("group")
    if group is None:
        return
    group.set(
        "expressions", [_resolve(select, each, kinds.columns).copy() for each in group.expressions]
    )


def _sort_nulls_last(select: exp.Select, order: exp.Expr | None) -> None:
    """Keep the query's NULL order, because SQL Server sorts NULL as the smallest value."""
    if order is None:
        return
    terms: list[exp.Expr] = []
    for term in order.expressions:
        descending = bool(term.args.get("desc"))
        resolved = _resolve(select, term.this, frozenset()).copy()
        # Where the query has no NULLS clause, sqlglot has set the dialect's default.
        first = bool(term.args.get("nulls_first"))
        if first == descending and not _is_never_null(resolved):
            test = exp.Is(this=exp.paren(resolved), expression=exp.Null())
            null = exp.Case().when(test, exp.Literal.number(1)).else_(exp.Literal.number(0))
            terms.append(exp.Ordered(this=null, desc=first, nulls_first=not first))
        terms.append(
            exp.Ordered(this=term.this.copy(), desc=descending, nulls_first=not descending)
        )
    order.set("expressions", terms)


def _resolve(select: exp.Select, node: exp.Expr, columns: frozenset[str]) -> exp.Expr:
    """Expression that a position or an alias denotes."""
    if isinstance(node, exp.Literal) and node.is_int:
        place = int(node.name)
        if 0 < place <= len(select.selects):
            resolved: exp.Expr = select.selects[place - 1].unalias()
            return resolved
    if isinstance(node, exp.Column) and not node.table and node.name.casefold() not in columns:
        for each in select.selects:
            if isinstance(each, exp.Alias) and each.alias.casefold() == node.name.casefold():
                return each.unalias()
    return node


def _is_never_null(node: exp.Expr) -> bool:
    if isinstance(node, exp.Coalesce):
        return any(isinstance(each, exp.Literal) for each in node.expressions)
    if isinstance(node, exp.Round | exp.Paren):
        return _is_never_null(node.this)
    return isinstance(node, _NEVER_NULL)
