"""Sizes of values: bounds of functions and operators, worked out before a query runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

# What a value of a table is taken to be where it multiplies something else.
_USUAL_BYTES = 1_000.0
# Digits of a number to a power that only the data hold.
_LONGEST_NUMBER = 20_000.0
_ENDLESS = 1e12
UNNAMED = "?"


@dataclass(frozen=True, slots=True)
class Size:
    """At most this much: bytes that the query itself makes, and copies of what it reads.

    Attributes:
        made: bytes made from nothing but the query's text.
        natural: copies of values that tables hold.
        again: copies of what a recursive query has made so far.
    """

    made: float = 0.0
    natural: float = 0.0
    again: float = 0.0

    def __add__(self, other: Size) -> Size:
        return Size(self.made + other.made, self.natural + other.natural, self.again + other.again)

    def times(self, factor: float) -> Size:
        """So many copies of it."""
        return Size(self.made * factor, self.natural * factor, self.again * factor)

    def at_least(self, other: Size) -> Size:
        """The larger of both, whichever that is."""
        return Size(
            max(self.made, other.made),
            max(self.natural, other.natural),
            max(self.again, other.again),
        )

    @property
    def weight(self) -> float:
        """Its bytes, with what tables hold taken to be of the usual size."""
        return self.made + _USUAL_BYTES * (self.natural + self.again)


NUMBER = Size(32.0)
NATURAL = Size(natural=1.0)

KEEPING = frozenset(
    {
        "string_agg", "array_agg", "json_agg", "jsonb_agg", "json_object_agg", "jsonb_object_agg",
        "group_concat", "json_group_array", "json_group_object", "json_arrayagg", "json_objectagg",
        "array", "list", "listagg",
    }
)  # fmt: skip
"""Aggregates whose result holds every value they are given."""
CHOOSING = frozenset(
    {
        "min", "max", "any_value", "mode", "percentile_disc", "first_value", "last_value",
        "nth_value", "lag", "lead", "coalesce", "ifnull", "isnull", "nullif", "greatest", "least",
        "iif", "if", "choose", "first", "last", "arg_min", "arg_max", "min_by", "max_by",
        "quantile_disc",
    }
)  # fmt: skip
"""Functions that return one of the values they are given."""
AGGREGATES = KEEPING | frozenset(
    {
        "count", "count_big", "sum", "total", "avg", "min", "max", "bool_and", "bool_or", "every",
        "any_value", "median", "count_if", "countif", "fsum", "favg", "mean", "first", "last",
        "arg_min", "arg_max", "min_by", "max_by", "mode", "quantile_cont", "quantile_disc",
    }
)  # fmt: skip
_NUMERIC = frozenset(
    {
        "count", "count_big", "sum", "total", "avg", "length", "char_length", "character_length",
        "octet_length", "len", "datalength", "strpos", "instr", "charindex", "patindex", "ascii",
        "unicode", "chr", "char", "nchar", "md5", "row_number", "rank", "dense_rank",
        "percent_rank", "cume_dist", "ntile", "cardinality", "array_length", "date_trunc",
        "date_part", "extract", "age", "similarity", "starts_with", "regexp_count", "regexp_like",
        "regexp_instr", "json_typeof", "jsonb_typeof", "json_array_length", "jsonb_array_length",
        "num_nulls", "num_nonnulls", "typeof", "isnumeric", "isdate", "isjson", "json_valid",
        "now", "date", "time", "datetime", "julianday", "unixepoch", "strftime", "getdate",
        "dateadd", "datediff", "datediff_big", "datepart", "datename", "day", "month", "year",
        "stddev", "variance", "corr", "grouping", "width_bucket", "random", "pi", "sqrt", "ln",
        "log", "sign", "percentile_cont", "median", "to_date", "to_timestamp", "make_date",
        "bool_and", "bool_or", "every", "bit_and", "bit_or", "bit_xor", "to_number",
        "locate", "position", "find_in_set", "field", "strcmp", "ord", "std", "curdate", "curtime",
        "utc_date", "utc_time", "utc_timestamp", "sysdate", "timestamp", "quarter", "monthname",
        "week", "weekofyear", "yearweek", "weekday", "dayofmonth", "dayofweek", "dayofyear",
        "dayname", "hour", "minute", "second", "microsecond", "date_add", "date_sub", "adddate",
        "subdate", "timestampdiff", "timestampadd", "str_to_date", "from_unixtime",
        "count_if", "countif", "fsum", "favg", "mean", "strlen", "levenshtein", "contains",
        "prefix", "suffix", "ends_with", "regexp_matches", "regexp_full_match", "date_diff",
        "datesub", "datetrunc", "time_bucket", "strptime", "try_strptime", "epoch", "epoch_ms",
        "isodow", "isoyear", "quantile_cont", "approx_count_distinct", "list_contains", "list_has",
        "array_contains", "list_sum", "list_avg",
        "unix_timestamp", "last_day", "to_days", "json_length", "json_depth", "json_contains",
    }
)  # fmt: skip
# How many times longer each can make what it is given: quotes, escapes, padding of elements.
_FACTORS = {
    "upper": 3, "lower": 3, "initcap": 3, "unaccent": 4, "hex": 2, "quote": 2, "quote_literal": 2,
    "to_json": 3, "to_jsonb": 4, "row_to_json": 3, "json_build_object": 2, "json_build_array": 2,
    "jsonb_build_object": 3, "jsonb_build_array": 3, "json_object": 2, "json_array": 2,
    "string_to_array": 8, "array_positions": 8, "lcase": 3, "ucase": 3, "json_unquote": 2,
    "string_split": 24, "str_split": 24, "split": 24, "regexp_split_to_array": 24,
    "regexp_extract_all": 24,
}  # fmt: skip


EVERY_MATCH = "regexp_replace of every match"
"""What ``regexp_replace`` of MySQL goes by here: it needs no flag for that."""


def text_of(node: exp.Expr | None) -> str | None:
    """The text that is written here, if it is written."""
    if isinstance(node, exp.Literal | exp.RawString | exp.National) and (
        not isinstance(node, exp.Literal) or node.is_string
    ):
        return str(node.name)
    return None


def number_of(node: exp.Expr | None) -> float | None:
    """The number that is written here, if it is written."""
    sign = 1.0
    while isinstance(node, exp.Paren | exp.Neg | exp.Cast):
        sign = -sign if isinstance(node, exp.Neg) else sign
        node = node.this
    if isinstance(node, exp.Literal):
        try:
            return sign * float(node.name)
        except ValueError:
            return None
    return None


def size_of_call(name: str, arguments: Sequence[exp.Expr], sizes: Sequence[Size]) -> Size:
    """The size of what a function returns, by the sizes of its arguments."""
    rule = _RULES.get(name)
    if rule is not None:
        return rule(arguments, sizes)
    if name in _NUMERIC:
        return NUMBER
    if name in CHOOSING:
        return largest(sizes)
    return total(sizes).times(_FACTORS.get(name, 1)) + NUMBER


def size_of_cast(node: exp.Cast, size: Size) -> Size:
    """The size of a value in another type."""
    if node.to.this.name in {"JSONB", "ARRAY"}:
        size = size.times(8)
    return size + size_of_padding(node.to)


def size_of_padding(to: exp.Expr) -> Size:
    """CHAR of a length pads to it."""
    if not isinstance(to, exp.DataType) or to.this.name not in {"CHAR", "NCHAR"}:
        return Size()
    widths = [number_of(getattr(each, "this", None)) or 0.0 for each in to.expressions]
    return Size(4 * max(widths, default=0.0))


def size_of_text(text: str) -> Size:
    """The size of text that is written in the query."""
    return Size(float(len(text.encode("utf-8", "replace"))))


def size_of_literal(node: exp.Literal) -> Size:
    """Its text, or the digits of the number: 1e100000 has many."""
    if node.is_string:
        return size_of_text(node.name)
    _, _, exponent = node.name.lower().partition("e")
    digits = float(exponent.lstrip("+-") or 0) if exponent else 0.0
    return Size(len(node.name) + min(digits, _LONGEST_NUMBER))


def size_of_power(arguments: Sequence[exp.Expr], sizes: Sequence[Size]) -> Size:
    """A number to a small power stays short."""
    exponent = number_of(arguments[1]) if len(arguments) > 1 else None
    if exponent is not None and abs(exponent) <= 10:
        return sizes[0].times(0).at_least(Size(min(32 * max(1, abs(exponent)), _LONGEST_NUMBER)))
    return Size(_LONGEST_NUMBER)


def total(sizes: Sequence[Size]) -> Size:
    """All of them together."""
    found = Size()
    for size in sizes:
        found = found + size
    return found


def largest(sizes: Sequence[Size]) -> Size:
    """At least as large as each of them."""
    found = Size()
    for size in sizes:
        found = found.at_least(size)
    return found


def _repeat(arguments: Sequence[exp.Expr], sizes: Sequence[Size]) -> Size:
    return sizes[0].times(_count(arguments, 1)) if sizes else Size()


def _space(arguments: Sequence[exp.Expr], _: Sequence[Size]) -> Size:
    return Size(_count(arguments, 0))


def _pad(arguments: Sequence[exp.Expr], _: Sequence[Size]) -> Size:
    return Size(4 * _count(arguments, 1))


def _count(arguments: Sequence[exp.Expr], place: int) -> float:
    """The count that is written; endless where it is not, which another rule refuses."""
    found = number_of(arguments[place]) if place < len(arguments) else None
    return _ENDLESS if found is None else max(1.0, found)


def _replace(arguments: Sequence[exp.Expr], sizes: Sequence[Size]) -> Size:
    if len(sizes) < 3:
        return total(sizes)
    pattern = text_of(arguments[1])
    return sizes[0].times(max(1.0, sizes[2].weight / len(pattern or " ")))


def _regexp_replace(arguments: Sequence[exp.Expr], sizes: Sequence[Size]) -> Size:
    """Every place may match, also empty ones; what a reference repeats was there before."""
    if len(sizes) < 3:
        return total(sizes)
    written = text_of(arguments[2])
    if written is None:
        return (sizes[0] + Size(1)).times(1 + sizes[2].weight)
    references = written.count("\\")
    new = max(0.0, sizes[2].weight - 2 * references)
    copies = max(1.0, references)
    flags = text_of(arguments[3]) if len(arguments) == 4 else ""
    if len(arguments) <= 4 and flags is not None and "g" not in flags:
        return sizes[0].times(copies) + Size(new)
    return sizes[0].times(copies + new) + Size(new)


def _every_match(arguments: Sequence[exp.Expr], sizes: Sequence[Size]) -> Size:
    """MySQL replaces every match, also empty ones, and repeats groups by number."""
    if len(sizes) < 3:
        return total(sizes)
    written = text_of(arguments[2])
    if written is None:
        return (sizes[0] + Size(1)).times(1 + sizes[2].weight)
    references = written.count("\\") + written.count("$")
    return sizes[0].times(1 + references + sizes[2].weight) + Size(sizes[2].weight)


def _regexp_match(arguments: Sequence[exp.Expr], sizes: Sequence[Size]) -> Size:
    pattern = text_of(arguments[1]) if len(arguments) > 1 else None
    groups = pattern.count("(") if pattern is not None else _USUAL_BYTES
    return sizes[0].times(1 + groups) if sizes else Size()


def _joined(arguments: Sequence[exp.Expr], sizes: Sequence[Size]) -> Size:
    """array_to_string writes the separator, or the text for NULL, for every element."""
    return sizes[0].times(1 + total(sizes[1:]).weight / 8) if sizes else Size()


def _array_replace(arguments: Sequence[exp.Expr], sizes: Sequence[Size]) -> Size:
    return sizes[0].times(1 + sizes[-1].weight / 8) if sizes else Size()


def _concat_ws(arguments: Sequence[exp.Expr], sizes: Sequence[Size]) -> Size:
    return (sizes[0].times(max(1, len(sizes) - 2)) + total(sizes[1:])) if sizes else Size()


def _formatted(arguments: Sequence[exp.Expr], sizes: Sequence[Size]) -> Size:
    """Each mark of a format becomes a word or a field of bounded width, or an argument."""
    return total(sizes).times(20) if sizes else Size()


def _printf(arguments: Sequence[exp.Expr], sizes: Sequence[Size]) -> Size:
    pattern = text_of(arguments[0]) if arguments else None
    decimals = arguments[1] if len(arguments) > 1 else None
    if pattern is None and text_of(decimals) is None and number_of(decimals) is not None:
        return NUMBER.times(4)  # FORMAT(value, decimals) of MySQL, which knows 38 of them
    if pattern is None:  # FORMAT(value, format) of T-SQL, with its D20 and N2
        written = text_of(arguments[1]) if len(arguments) > 1 else None
        is_small = written is not None and not re.search(r"\d{4}", written)
        return total(sizes).times(20) if is_small else Size(_ENDLESS)
    wide = pattern.count("%") if re.search(r"%[^a-zA-Z]*\d{2}", pattern) else 0
    return total(sizes) + Size(1_000.0 * wide)


def _pretty(arguments: Sequence[exp.Expr], sizes: Sequence[Size]) -> Size:
    """Each level of nesting indents all that is in it."""
    return (
        Size(4 * sizes[0].made ** 2, 4 * sizes[0].natural, 4 * sizes[0].again) if sizes else Size()
    )


_RULES: Mapping[str, Callable[[Sequence[exp.Expr], Sequence[Size]], Size]] = {
    "repeat": _repeat,
    "replicate": _repeat,
    "space": _space,
    "lpad": _pad,
    "rpad": _pad,
    "replace": _replace,
    "regexp_replace": _regexp_replace,
    EVERY_MATCH: _every_match,
    "regexp_match": _regexp_match,
    "array_to_string": _joined,
    "array_replace": _array_replace,
    "concat_ws": _concat_ws,
    "to_char": _formatted,
    "format": _printf,
    "printf": _printf,
    "jsonb_pretty": _pretty,
    "power": size_of_power,
    "pow": size_of_power,
    "exp": lambda _arguments, _sizes: Size(5_000.0),
}


@dataclass(slots=True)
class Source:
    """Output of a query, table or function: the sizes of its columns and how many rows."""

    columns: list[tuple[str, Size]] = field(default_factory=list)
    rows: float = 1.0
    """Rows that the query makes itself; those of tables are not counted."""
    natural: bool = False
    """Whether tables add rows."""
    open: bool = False
    """Whether it has columns that are not listed: those of a table."""
    crossed: bool = False
    """Whether it puts every row of a table beside every row of another."""

    def named(self, name: str) -> Size | None:
        """The size of the column with that name, if there is one."""
        found = [size for column, size in self.columns if column in (name, UNNAMED + name)]
        return largest(found) if found else None

    @property
    def unnamed(self) -> Size:
        """The size of a column that the query gives no name, so that the server chooses one."""
        return largest([size for name, size in self.columns if name.startswith(UNNAMED)])

    @property
    def any_column(self) -> Size:
        """The size of a column whose name says nothing."""
        sizes = [size for _, size in self.columns]
        return largest([*sizes, NATURAL] if self.open else sizes)

    @property
    def row(self) -> Size:
        """The size of a whole row."""
        return total([size for _, size in self.columns]) + (NATURAL if self.open else Size())


TABLE = Source(natural=True, open=True)
Scope = dict[str, Source]
