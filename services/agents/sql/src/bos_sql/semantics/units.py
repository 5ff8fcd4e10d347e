"""Units of a query's result: those declared for the columns that its columns are made of. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from bos_llm.numbers.units import MONEY, unit_in_comment, unit_in_name
from bos_sql.dialects.reading import Unreadable, read_query
from bos_sql.semantics.expressions import TooLong
from bos_sql.semantics.lineage import Lineage, Untraceable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bos_sql.grounding.catalog import Catalog, Field
    from bos_sql.semantics.expressions import Normal
    from bos_sql.semantics.fields import Fields
    from bos_sqlguard import Dialect

# Functions whose value has the unit of their arguments. A product or quotient has another one.
_KEEPING = frozenset(
    [
        *("SUM", "AVG", "MIN", "MAX", "MEDIAN", "ABS", "ROUND", "FLOOR", "CEIL"),
        *("COALESCE", "CAST", "TRYCAST", "NEG", "ADD", "SUB"),
    ]
)
_MONEY_TYPES = frozenset({"money", "smallmoney"})


def declared_unit(field: Field) -> str:
    """Unit that metadata, comment, type or name of a column declares; empty if none does."""
    of_type = MONEY if field.type.casefold() in _MONEY_TYPES else ""
    commented = unit_in_comment(field.comment, field.name)
    return field.unit or commented or unit_in_name(field.name) or of_type


def result_units(sql: str, dialect: Dialect, catalog: Catalog) -> Mapping[str, str]:
    """Declared unit of each column of the result, by its name in lower case.

    A column has none if it is made of columns of different units, or in a way that is not followed.
    """
    try:
        tree = read_query(sql, dialect)
        lineage = Lineage(tree, catalog)
        outputs = [each for each in lineage.outputs() if each.alias]
    except (Unreadable, Untraceable, TooLong):
        return {}
    names = [output.alias for output in outputs]
    if isinstance(tree, exp.SetOperation):
        # The branches' columns follow one another; the first branch names them.
        first = tree.named_selects
        star = any(each.is_star for each in tree.find_all(exp.Select))
        if star or not first or len(outputs) % len(first):
            return {}
        names = first * (len(outputs) // len(first))
    found: dict[str, set[str]] = {}
    for name, output in zip(names, outputs, strict=True):
        found.setdefault(name.casefold(), set()).add(_unit(output.normal, lineage.fields))
    return {name: next(iter(units)) for name, units in found.items() if len(units) == 1}


def _unit(normal: Normal, fields: Fields) -> str:
    if not normal.parts:
        named = [f"{table}.{column}" for table, column in normal.columns]
        field = fields.get(next(iter(normal.columns))) if named == [normal.text] else None
        return "" if field is None else declared_unit(field)
    if normal.text.partition("(")[0] not in _KEEPING:
        return ""
    units = {_unit(part, fields) for part in normal.parts if part.columns}
    return units.pop() if len(units) == 1 else ""
