"""Statements in which a word stands for every kind of name, in every spelling; seeded.

Their database has a table for each word, named by it, with the columns ``pk``, ``amount`` and one
named by the word, and a table ``sales`` with a column for each word.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from sqlglot.dialects.dialect import Dialect as SqlglotDialect

from bos_sqlguard import Dialect

SALES = "sales"

# {w} is the word, {x} another one; each is spelled anew wherever it stands.
PLACES = (
    "SELECT pk FROM {w}",
    "SELECT count(*) FROM {w}",
    "SELECT {w}.pk FROM {w}",
    "SELECT {w} FROM {w}",
    "SELECT {w}.{w} FROM {w}",
    "SELECT s.pk FROM {schema}.{w} AS s",
    "SELECT s.pk FROM sales AS s, {w}",
    "SELECT s.pk FROM sales AS s JOIN {w} ON s.pk = {w}.pk",
    "SELECT s.pk FROM sales AS s LEFT JOIN {w} AS t ON s.pk = t.{w}",
    "SELECT s.pk FROM sales AS s CROSS JOIN {w}",
    "SELECT pk FROM {w} ORDER BY pk",
    "SELECT pk FROM {w} WHERE amount > 1",
    "SELECT {w}.pk FROM sales AS {w}",
    "SELECT {w}.pk FROM sales {w}",
    "SELECT pk FROM sales {w}",
    "SELECT pk FROM sales AS {w}",
    "SELECT pk FROM sales {w} WHERE pk = 1",
    "SELECT pk FROM sales {w} ORDER BY pk",
    "SELECT {w}.pk FROM sales {w} JOIN {x} ON {w}.pk = {x}.pk",
    "SELECT t.pk FROM sales {w}, {x} AS t",
    "SELECT t.pk FROM sales {w} JOIN {x} AS t ON t.pk = 1",
    "SELECT s.pk FROM sales AS s JOIN sales {w} ON s.pk = {w}.pk",
    "SELECT {w}.{x} FROM sales AS {w}",
    "SELECT {w}.* FROM {w}",
    "SELECT {w}.* FROM {x} AS {w}",
    "SELECT {w} FROM sales",
    "SELECT sales.{w} FROM sales",
    "SELECT s.{w} FROM sales AS s",
    "SELECT {schema}.sales.{w} FROM {schema}.sales",
    "SELECT {w}, {x} FROM sales",
    "SELECT pk, {w} FROM sales",
    "SELECT {w} - 1 AS n FROM sales",
    "SELECT pk + {w} AS n FROM sales",
    "SELECT - {w} AS n FROM sales",
    "SELECT ({w}) FROM sales",
    "SELECT count({w}) AS n FROM sales",
    "SELECT count(DISTINCT {w}) AS n FROM sales",
    "SELECT sum(amount) AS n FROM sales GROUP BY {w}",
    "SELECT {w}, sum(amount) AS n FROM sales GROUP BY {w} HAVING max({w}) > 1",
    "SELECT pk FROM sales WHERE {w} = 1",
    "SELECT pk FROM sales WHERE 1 = {w}",
    "SELECT pk FROM sales WHERE {w} IS NULL",
    "SELECT pk FROM sales WHERE {w} IN (1, 2)",
    "SELECT pk FROM sales WHERE {w} BETWEEN 1 AND {x}",
    "SELECT pk FROM sales WHERE NOT {w} = 1 AND {x} = 2",
    "SELECT pk FROM sales ORDER BY {w}",
    "SELECT pk FROM sales ORDER BY {w} DESC",
    "SELECT CASE WHEN {w} = 1 THEN {x} ELSE {w} END AS n FROM sales",
    "SELECT CASE {w} WHEN 1 THEN {x} END AS n FROM sales",
    "SELECT CAST({w} AS integer) AS n FROM sales" ,
    "SELECT sum(amount) OVER (PARTITION BY {w} ORDER BY {x}) AS n FROM sales",
    "SELECT sum(amount) OVER {w} AS n FROM sales WINDOW {w} AS (ORDER BY pk)",
    "SELECT pk AS {w} FROM sales",
    "SELECT pk {w} FROM sales",
    "SELECT pk {w}, amount {x} FROM sales",
    "SELECT amount AS {w} FROM sales ORDER BY {w}",
    "SELECT pk + 1 {w} FROM sales",
    "SELECT count(*) {w} FROM sales",
    "SELECT {w} {x} FROM sales",
    "SELECT {w} pk FROM sales",
    "SELECT {w} AS {x} FROM sales",
    "SELECT pk FROM sales WHERE pk = 1 {w}",
    "SELECT {w}(pk) AS n FROM sales",
    "SELECT {w} (pk) AS n FROM sales",
    "SELECT {w}(pk, amount) AS n FROM sales",
    "SELECT {w}() AS n FROM sales",
    "SELECT pk FROM {w}(1)",
    "SELECT s.pk FROM sales AS s JOIN {w} USING (pk)",
    "SELECT s.pk FROM sales AS s JOIN {w} USING ({w})",
    "SELECT pk FROM sales WHERE pk IN (SELECT {w} FROM {w})",
    "SELECT pk FROM sales WHERE EXISTS (SELECT 1 FROM {w} WHERE {w}.pk = sales.pk)",
    "SELECT pk FROM sales AS {w} WHERE EXISTS (SELECT 1 FROM {x} WHERE {x}.pk = {w}.pk)",
    "SELECT (SELECT max(pk) FROM {w}) AS n",
    "SELECT pk FROM sales WHERE pk = (SELECT max({w}) FROM {x})",
    "WITH {w} AS (SELECT pk FROM sales) SELECT pk FROM {w}",
    "WITH {w} AS (SELECT pk FROM sales) SELECT {w}.pk FROM {w}",
    "WITH {w} AS (SELECT pk FROM {x}) SELECT t.pk FROM {w} AS t",
    "WITH {w} AS (SELECT pk FROM {w}) SELECT pk FROM {w}",
    "WITH {w} (n) AS (SELECT pk FROM sales) SELECT n FROM {w}",
    "WITH c ({w}) AS (SELECT pk FROM sales) SELECT {w} FROM c",
    "WITH c AS (SELECT {w} FROM sales) SELECT {w} FROM c",
    "WITH c AS (SELECT pk AS {w} FROM sales) SELECT c.{w} FROM c",
    "WITH {w} AS (SELECT pk FROM sales), {x} AS (SELECT pk FROM {w}) SELECT pk FROM {x}",
    "WITH {x} AS (SELECT pk FROM {w}), {w} AS (SELECT pk FROM sales)"
    " SELECT a.pk FROM {x} AS a, {w} AS b",
    "WITH {w} AS (SELECT pk FROM sales) SELECT a.pk FROM {w} AS a, {schema}.{w} AS b",
    "WITH RECURSIVE {w} (n) AS (SELECT 1 AS n UNION ALL SELECT n + 1 AS n FROM {w} WHERE n < 5)"
    " SELECT n FROM {w}",
    "SELECT pk FROM (WITH {w} AS (SELECT pk FROM sales) SELECT pk FROM {w}) AS t",
    "SELECT {w}.pk FROM (SELECT pk FROM sales) AS {w}",
    "SELECT {w}.pk FROM (SELECT pk FROM sales) {w}",
    "SELECT t.{w} FROM (SELECT {w} FROM sales) AS t",
    "SELECT pk FROM sales UNION ALL SELECT {w} FROM {x}",
    "SELECT pk FROM {w} UNION SELECT pk FROM {x}",
    "SELECT s.pk FROM sales AS s {w} JOIN {x} AS t ON s.pk = t.pk",
    "SELECT s.pk FROM sales AS s {w} SELECT pk FROM {x}",
    "SELECT pk FROM sales LIMIT {w}",
    "SELECT pk {w} amount AS n FROM sales",
    "SELECT pk FROM sales WHERE pk {w} amount",
    "SELECT pk FROM sales GROUP BY pk {w}",
    "SELECT DISTINCT {w} FROM sales",
    "SELECT DISTINCT pk, {w} FROM {w}",
    "SELECT ALL {w} FROM sales",
    "SELECT pk FROM sales COLLATE {w}",
    "SELECT pk FROM {w}.sales",
    "SELECT {w}.sales.pk FROM {schema}.sales",
)  # fmt: skip
AROUND = (
    "SELECT * FROM ({}) AS around",
    "WITH around AS ({}) SELECT count(*) AS n FROM around",
    "SELECT pk FROM sales WHERE EXISTS ({})",
    "SELECT count(*) AS n FROM ({}) AS around WHERE 1 = 1",
)
_SPELLED_PLAIN = 0.8
_SQLITE_QUOTES = ('""', "``", "[]")


def parser_words(dialect: Dialect) -> set[str]:
    """Words with a meaning of their own to the parser of the guard."""
    found = SqlglotDialect.get_or_raise(dialect)
    tokenizer, parser = found.tokenizer_class, found.parser_class
    words = {*tokenizer.KEYWORDS, *parser.NO_PAREN_FUNCTION_PARSERS, *parser.FUNCTION_PARSERS}
    words |= {kind.name for kind in parser.QUERY_MODIFIER_PARSERS} | {*parser.SET_OP_MODIFIERS}
    parts = {part for word in words for part in word.split()}
    return {part.lower() for part in parts if part.isidentifier() and part.isascii()}


def statements(
    dialect: Dialect, words: Sequence[str], *, schema: str, seed: int, count: int
) -> Iterator[str]:
    """``count`` statements; each word at each place, if there are enough."""
    source = random.Random(f"{seed} {dialect}")
    pairs = [(place, word) for place in PLACES for word in words]
    source.shuffle(pairs)
    for turn in range(count):
        place, word = pairs[turn % len(pairs)]
        statement = _filled(source, dialect, place, word, source.choice(words), schema)
        if "WITH" not in place and "LIMIT" not in place and source.random() < 0.2:
            statement = source.choice(AROUND).replace("{}", statement)
        yield statement


def _filled(
    source: random.Random, dialect: Dialect, place: str, word: str, other: str, schema: str
) -> str:
    plain = source.random() < _SPELLED_PLAIN
    parts = place.replace("{schema}", schema).split("{")
    filled = [parts[0]]
    for part in parts[1:]:
        name, _, rest = part.partition("}")
        filled += [spelled(source, dialect, word if name == "w" else other, plain=plain), rest]
    return "".join(filled)


def spelled(source: random.Random, dialect: Dialect, word: str, *, plain: bool) -> str:
    """The word in lower, upper or mixed case; quoted for the dialect, unless it is plain."""
    cased = "".join(source.choice((each.upper(), each.lower())) for each in word)
    unquoted = source.choice((word, word, word.upper(), cased))
    if plain or source.random() < 0.4:
        return unquoted
    text = word if source.random() < 0.8 else unquoted
    quotes = source.choice({"mysql": ("``",), "sqlite": _SQLITE_QUOTES}.get(dialect, ('""',)))
    return f"{quotes[0]}{text}{quotes[1]}"
