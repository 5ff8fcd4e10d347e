"""Names of tables and columns by names of files, sheets and headings: safe, and always the same."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final

_MAX_CHARS: Final = 48
_UNFIT: Final = re.compile(r"[\W_]+")
# What DuckDB 2.0 reserves, or reads as a type, a join or a function where a name stands.
_WORDS: Final = """
    all analyse analyze and anti any array as asc asof asymmetric at authorization between bigint
    binary bit boolean both by case cast char character check coalesce collate collation column
    columns concurrently constraint copy create cross dec decimal default deferrable desc describe
    distinct do else end except exists extract false fetch float for foreign freeze from full
    generated glob group grouping grouping_id having ilike in initially inner inout int integer
    intersect interval into is isnull join lambda lateral leading left like limit map national
    natural nchar none not notnull null nullif numeric offset on only or order out outer overlaps
    overlay pivot pivot_longer pivot_wider placing position positional precision primary qualify
    real references returning right row rowid select semi setof show similar smallint some struct
    substring summarize symmetric table tablesample then time timestamp to trailing treat trim true
    try_cast tuple union unique unpack unpivot user using values varchar variadic when where window
    with
    alter call delete drop exec execute grant insert invoke merge revoke truncate update
    current_catalog current_database current_query current_role current_schema current_schemas
    current_user session_user current_date current_time current_timestamp localtime localtimestamp
"""
_RESERVED: Final = frozenset(_WORDS.split())
_SYSTEM: Final = ("duckdb_", "pg_", "pragma_", "sqlite_", "information_schema")


def table_names(files: Iterable[tuple[str, Sequence[str]]]) -> dict[tuple[str, int], str]:
    """Return the name of each table, by file and place of the sheet.

    A file with one sheet gives its name, one with several its name and the sheet's. Where two meet,
    files are taken in the order of their names, and a later one gets a number.

    Args:
        files: Names of files, each with the titles of its sheets; a CSV file has one without title.
    """
    taken: set[str] = set()
    found = {}
    for file, sheets in sorted(files, key=lambda each: each[0]):
        stem = file.rpartition("/")[2]
        stem = stem.rpartition(".")[0] or stem
        for place, sheet in enumerate(sheets):
            title = stem if len(sheets) == 1 else f"{stem} {sheet}"
            found[file, place] = _free(_plain(title, "data"), taken)
    return found


def column_names(titles: Iterable[str]) -> list[str]:
    """Return the name of each column; one without a title is called by its place."""
    taken: set[str] = set()
    return [_free(_plain(title, f"column_{place}"), taken) for place, title in enumerate(titles, 1)]


def _plain(title: str, otherwise: str) -> str:
    """Lower-case letters, digits and underscores that every reader of SQL takes for one name."""
    composed = unicodedata.normalize("NFKC", title).casefold()
    letters = "".join(each for each in composed if not unicodedata.category(each).startswith("M"))
    name = _UNFIT.sub("_", letters).strip("_")[:_MAX_CHARS].strip("_")
    if not name:
        return otherwise
    if not name[0].isalpha():
        name = f"n_{name}"
    if name in _RESERVED or name.startswith(_SYSTEM):
        name = f"{name}_"
    return name if not name.startswith(_SYSTEM) else f"file_{name}"


def _free(name: str, taken: set[str]) -> str:
    found, number = name, 2
    while found in taken:
        found, number = f"{name}_{number}", number + 1
    taken.add(found)
    return found
