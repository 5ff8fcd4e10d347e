"""Inspection of a syntax tree in one walk: reports all that is not on a list."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from sqlglot import exp

from bos_sqlguard.names import PLAIN_NAME, fold, is_system_table
from bos_sqlguard.nodes import (
    ARGUMENT_RULES,
    DIALECT_RULES,
    NAME_PLACES,
    NODE_RULES,
    NODES,
    TYPES,
)
from bos_sqlguard.policy import Functions, GuardPolicy
from bos_sqlguard.reserved import is_reserved

_NUMBER = re.compile(r"(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_KEYWORDS = re.compile(r"[A-Za-z_][A-Za-z0-9_ ]*")
_LARGEST_ARGUMENT = 10_000
_WIDE = re.compile(r"(?:^|[^%])(?:%%)*%[^%a-zA-Z]*(?:\d{4}|\*)")
_FRAME_EXCLUSIONS = frozenset({"CURRENT ROW", "NO OTHERS"})
_CLAUSES = frozenset({"with_", "order", "limit", "offset", "by_name"})
_NO_NAMES: frozenset[str] = frozenset()

Broken = tuple[str, str]
"""A broken rule: its id and the offending part of the query."""


class Inspection:
    """One walk over one tree; ``broken`` and ``used_tables`` are the outcome.

    The walk carries the CTE names visible at each node, so a name is a CTE exactly where the server
    takes it for one, and a table everywhere else.
    """

    def __init__(
        self,
        policy: GuardPolicy,
        tables: dict[tuple[str, str], str],
        functions: Functions,
    ) -> None:
        self._policy = policy
        self._dialect = policy.dialect
        self._tables = tables
        self._functions = functions
        self.broken: list[Broken] = []
        self.used_tables: set[str] = set()
        self._begins: dict[int, str] = {}
        """By identity of a query where the recursive CTE around it is not seen yet: its name."""

    def walk(self, tree: exp.Expr) -> None:
        """Inspect every node of ``tree``."""
        checks = self._checks()
        dialect_rules = DIALECT_RULES.get(self._dialect, {})
        stack: list[tuple[exp.Expr, frozenset[str]]] = [(tree, _NO_NAMES)]
        while stack:
            node, visible = stack.pop()
            if id(node) in self._begins:
                visible = visible - {self._begins[id(node)]}
            kind = type(node)
            allowed = NODES.get(kind)
            if allowed is None:
                self._refuse_node(node)
                continue
            if kind is exp.Table:
                self._check_table(cast("exp.Table", node), visible)
            elif (check := checks.get(kind)) is not None:
                check(node)
            if kind in dialect_rules:
                self.broken.append((dialect_rules[kind], kind.__name__))
            arguments = node.args
            with_ = arguments.get("with_")
            if isinstance(with_, exp.With):
                stack.extend(self._enter_with(with_, visible))
                visible = visible.union(self._cte_name(cte) for cte in with_.expressions)
            for key, value in arguments.items():
                if value is None or value is False or value is with_:
                    continue
                if key not in allowed:
                    if value != []:
                        rule = ARGUMENT_RULES.get((kind, key), "NODE_NOT_ALLOWED")
                        self.broken.append((rule, f"{kind.__name__} {key.strip('_')}"))
                    continue
                for item in value if type(value) is list else (value,):
                    if isinstance(item, exp.Expr):
                        stack.append((item, visible))
                    elif item is not True and kind not in _SELF_CHECKED:
                        self._check_plain(node, item)

    def _check_plain(self, node: exp.Expr, item: object) -> None:
        """What is no node in an argument must be a flag or a keyword."""
        if not (isinstance(item, str) and _KEYWORDS.fullmatch(item)):
            self.broken.append(("NODE_NOT_ALLOWED", f"{type(node).__name__} {item!s}"))

    def _refuse_node(self, node: exp.Expr) -> None:
        rule = NODE_RULES.get(type(node), "NODE_NOT_ALLOWED")
        self.broken.append(
            (rule, node.key if rule == "NODE_NOT_ALLOWED" else node.sql(comments=False))
        )

    # CTEs

    def _enter_with(
        self, with_: exp.With, visible: frozenset[str]
    ) -> Iterable[tuple[exp.Expr, frozenset[str]]]:
        """Return each CTE with the names it can see, as the server resolves them."""
        unknown = [cte for cte in with_.expressions if not isinstance(cte, exp.CTE)]
        extra = [key for key, value in with_.args.items() if value and key not in NODES[exp.With]]
        if unknown or extra:
            self.broken.append(("NODE_NOT_ALLOWED", "With"))
            return []
        names = [self._cte_name(cte) for cte in with_.expressions]
        if self._dialect == "sqlite" or (with_.recursive and self._dialect == "postgres"):
            return [(cte, visible.union(names)) for cte in with_.expressions]
        if self._dialect == "duckdb" and with_.recursive:
            self._mark_begins(with_, visible)
        # Earlier ones only; T-SQL lets a CTE see itself as well, and MySQL a recursive one. MariaDB
        # would see later ones, MySQL the tables of their names.
        own = 1 if self._dialect == "tsql" or with_.recursive else 0
        return [
            (cte, visible.union(names[: place + own]))
            for place, cte in enumerate(with_.expressions)
        ]

    def _mark_begins(self, with_: exp.With, visible: frozenset[str]) -> None:
        """Mark where DuckDB takes a recursive CTE's own name for a table, or one further outside.

        It sees itself in the last operand of a UNION alone; of any other query, nowhere. A UNION
        with clauses of its own is taken for another query.
        """
        for cte in with_.expressions:
            query, name = cte.this, self._cte_name(cte)
            plain = type(query) is exp.Union and not _CLAUSES.intersection(
                key for key, value in query.args.items() if value
            )
            begin = query.this if plain else query
            if name not in visible:
                self._begins[id(begin)] = name

    def _cte_name(self, cte: exp.CTE) -> str:
        alias = cte.args.get("alias")
        return self._reference(alias.this if alias is not None else None)

    def _reference(self, identifier: exp.Expr | None) -> str:
        if not isinstance(identifier, exp.Identifier):
            return ""
        # By collation T-SQL may or may not ignore case; only an identical name is surely the CTE.
        # MySQL goes by a setting of the server, which its fold knows.
        if self._dialect == "tsql":
            return str(identifier.this)
        return fold(self._dialect, identifier.this, quoted=bool(identifier.quoted))

    # nodes with rules of their own

    def _checks(self) -> Mapping[type[exp.Expr], Callable[[Any], None]]:
        """By exact class, as the list of allowed ones is."""
        checks: dict[type[exp.Expr], Callable[[Any], None]] = {
            exp.Identifier: self._check_identifier,
            exp.Column: self._check_column,
            exp.Anonymous: self._check_function,
            exp.DataType: self._check_type,
            exp.Collate: self._check_collation,
            exp.Group: self._check_group,
            exp.Star: self._check_star,
            exp.Literal: self._check_literal,
            exp.Var: self._check_word,
            exp.Alias: self._check_alias,
            exp.CTE: lambda node: self._check_query(node.this),
            exp.Union: self._check_set_operation,
            exp.Intersect: self._check_set_operation,
            exp.Except: self._check_set_operation,
            exp.Select: self._check_select,
            exp.From: self._check_source,
            exp.Join: self._check_join,
            exp.Tuple: self._check_tuple,
            exp.In: self._check_in,
            exp.Is: self._check_is,
            exp.Any: self._check_quantifier,
            exp.All: self._check_quantifier,
            exp.Distinct: self._check_distinct,
            exp.Lateral: self._check_source,
            exp.Interval: self._check_interval,
        }
        return checks

    def _check_source(self, node: exp.From | exp.Join | exp.Lateral) -> None:
        """A query as a source stands in parentheses, in every database."""
        if isinstance(node.this, exp.Select | exp.SetOperation):
            self.broken.append(("NODE_NOT_ALLOWED", "a query without parentheses as a source"))

    def _check_join(self, node: exp.Join) -> None:
        """``FROM a semi JOIN b`` names an alias where there are no joins of that name."""
        self._check_source(node)
        words = {str(node.args.get(part) or "").upper() for part in ("kind", "method")}
        if self._dialect == "mysql" and node.side.upper() == "FULL":
            self.broken.append(("PARSE", f"there is no FULL JOIN in MySQL and MariaDB; {_FULL}"))
        if foreign := words - _JOINS - _JOINS_OF.get(self._dialect, _NO_NAMES):
            self.broken.append(("NODE_NOT_ALLOWED", f"{' '.join(sorted(foreign))} JOIN"))

    def _check_is(self, node: exp.Is) -> None:
        """``a IS b`` compares two columns in SQLite alone."""
        truth = isinstance(node.expression, exp.Null | exp.Boolean)
        if self._dialect != "sqlite" and not truth and node.expression.name.lower() != "unknown":
            self.broken.append(("NODE_NOT_ALLOWED", "IS without NULL, TRUE or FALSE"))

    def _check_quantifier(self, node: exp.Any | exp.All) -> None:
        if not isinstance(node.parent, exp.Predicate):
            self.broken.append(("NODE_NOT_ALLOWED", f"{node.key} outside of a comparison"))

    def _check_interval(self, node: exp.Interval) -> None:
        """PostgreSQL has intervals of a text alone; anything else is a column of that name."""
        if self._dialect == "postgres" and not node.this.is_string:
            self.broken.append(("RESERVED_WORD", "interval"))

    def _check_distinct(self, node: exp.Distinct) -> None:
        if node.args.get("on") and self._dialect not in ("duckdb", "postgres"):
            self.broken.append(("PARSE", f"there is no DISTINCT ON in this dialect; {_ONE_EACH}"))
        if isinstance(node.parent, exp.Anonymous) and not node.expressions:
            self.broken.append(("NODE_NOT_ALLOWED", "DISTINCT without values"))

    def _check_in(self, node: exp.In) -> None:
        if not node.expressions and not node.args.get("query"):
            self.broken.append(("NODE_NOT_ALLOWED", "IN without values"))

    def _check_tuple(self, node: exp.Tuple) -> None:
        groups = (exp.Group, exp.GroupingSets, exp.Rollup, exp.Cube)
        if not node.expressions and not isinstance(node.parent, groups):
            self.broken.append(("NODE_NOT_ALLOWED", "Tuple without values"))

    def _check_select(self, node: exp.Select) -> None:
        """``SELECT EXCEPT`` reads like two queries, of which the first has no columns."""
        if not node.expressions:
            self.broken.append(("NODE_NOT_ALLOWED", "Select without columns"))

    def _check_literal(self, node: exp.Literal) -> None:
        if not node.is_string and not _NUMBER.fullmatch(node.name):
            self.broken.append(("NODE_NOT_ALLOWED", f"number {node.name}"))

    def _check_word(self, node: exp.Var) -> None:
        if not PLAIN_NAME.fullmatch(node.name) and node.name not in _FRAME_EXCLUSIONS:
            self.broken.append(("NAME_NOT_ALLOWED", node.name))

    def _check_alias(self, node: exp.Alias) -> None:
        if not isinstance(node.parent, exp.Select):
            self.broken.append(("NODE_NOT_ALLOWED", node.sql(comments=False)))

    def _check_set_operation(self, node: exp.SetOperation) -> None:
        self._check_query(node.this)
        self._check_query(node.expression)

    def _check_identifier(self, node: exp.Identifier) -> None:
        if not node.this or not (node.quoted or PLAIN_NAME.fullmatch(node.this)):
            self.broken.append(("NAME_NOT_ALLOWED", str(node.this) or "(empty)"))
        elif node.parent is None or node.arg_key not in NAME_PLACES.get(
            type(node.parent), _NO_NAMES
        ):
            # A name where none was expected may be one of a table: `CROSS APPLY salaries`.
            self.broken.append(("TABLE_NOT_ALLOWED", node.name))
        elif not node.quoted and type(node.parent) not in _NO_DATA:
            before = _QUALIFIED.get(type(node.parent), {}).get(str(node.arg_key), "")
            behind = type(node.parent) is exp.Alias or node.parent.args.get(before) is not None
            named_window = type(node.parent) is exp.Window and node.this.lower() in _NO_WINDOWS
            if named_window or is_reserved(self._dialect, node.this, behind_dot_or_as=behind):
                self.broken.append(("RESERVED_WORD", node.this))

    def _check_column(self, node: exp.Column) -> None:
        identifier = node.this
        if not isinstance(identifier, exp.Identifier):
            return
        name = self._stored(identifier)
        if name in self._functions.system_columns:
            self.broken.append(("NAME_NOT_ALLOWED", name))
        elif node.args.get("table") is None:
            if not identifier.quoted and name.lower() in self._functions.session_names:
                self.broken.append(("NAME_NOT_ALLOWED", identifier.name))
        # `row.name` calls the function of that name on the row, if the row has no such column.
        elif name in self._functions.of_a_row or name.startswith(self._functions.of_a_row_prefixes):
            self.broken.append(("FUNCTION_NOT_ALLOWED", node.sql(comments=False)))

    def _check_query(self, node: exp.Expr) -> None:
        """Refuse what is no query where one must stand; `(CHECKPOINT)` reads like a column."""
        if not isinstance(node, exp.Select | exp.SetOperation | exp.Subquery | exp.Values):
            self.broken.append(("NODE_NOT_ALLOWED", node.sql(comments=False)))

    def _check_group(self, node: exp.Group) -> None:
        """``GROUP BY ALL`` is by every column that is not aggregated in DuckDB, and only there."""
        if node.args.get("all") and (self._dialect != "duckdb" or node.expressions):
            self.broken.append(("NODE_NOT_ALLOWED", "Group all"))
        elif not any(node.args.values()):
            self.broken.append(("NODE_NOT_ALLOWED", "Group by nothing"))

    def _check_star(self, node: exp.Star) -> None:
        """``* LIKE 'a%'`` chooses columns by their names in DuckDB, and looks like a comparison."""
        parent = node.parent.parent if isinstance(node.parent, exp.Column) else node.parent
        if self._dialect == "duckdb" and not isinstance(parent, exp.Select | exp.Anonymous):
            self.broken.append(("NODE_NOT_ALLOWED", "Star"))

    def _check_collation(self, node: exp.Collate) -> None:
        if not isinstance(node.expression, exp.Identifier | exp.Var):
            self.broken.append(("NAME_NOT_ALLOWED", node.expression.sql(comments=False)))

    def _check_function(self, node: exp.Anonymous) -> None:
        name = node.this
        as_table = isinstance(node.parent, exp.Table | exp.Lateral) and node.arg_key == "this"
        listed = self._functions.table if as_table else self._functions.scalar
        if not isinstance(name, str) or name.lower() not in listed:
            self.broken.append(("FUNCTION_NOT_ALLOWED", node.name))
            return
        if name.lower() in _WITH_ARGUMENTS and not node.expressions:
            self.broken.append(("NODE_NOT_ALLOWED", f"{name} without arguments"))
        if name.lower() == "array":  # no function: it takes a query, and `TABLE x` is one
            for argument in node.expressions:
                self._check_query(argument)
        place = self._functions.bounded.get(name.lower())
        if place is not None and not _small_number(node.expressions, place):
            self.broken.append(("ARGUMENT_TOO_LARGE", name))
        if name.lower() in self._functions.formats and not _small_format(node.expressions):
            self.broken.append(("ARGUMENT_TOO_LARGE", name))

    def _check_type(self, node: exp.DataType) -> None:
        name = getattr(node.this, "name", str(node.this))
        if name not in TYPES[self._dialect]:
            self.broken.append(("TYPE_NOT_ALLOWED", node.sql(comments=False)))

    def _check_table(self, node: exp.Table, visible: frozenset[str]) -> None:
        if not isinstance(node.this, exp.Identifier):
            if not isinstance(node.this, exp.Anonymous) or node.args.get("db"):
                self.broken.append(("TABLE_NOT_ALLOWED", node.sql(comments=False)))
            return
        schema = node.args.get("db")
        if schema is None and self._reference(node.this) in visible:
            return
        if schema is not None and not isinstance(schema, exp.Identifier):
            self.broken.append(("TABLE_NOT_ALLOWED", node.sql(comments=False)))
            return
        if schema is None and self._dialect in _CTES_BY_SETTING:
            spelled = {name.lower(): name for name in visible}.get(node.name.lower())
            if spelled is not None:
                detail = f"{node.name} is spelled {spelled} in its WITH: spell both alike"
                self.broken.append(("PARSE", detail))
                return
        schema_name = self._stored(schema) if schema else self._policy.default_schema
        table_name = self._stored(node.this)
        fold_stored = self._policy.fold_stored
        entry = self._tables.get((fold_stored(schema_name), fold_stored(table_name)))
        shown = f"{schema.name}.{node.name}" if schema else node.name
        if is_system_table(self._dialect, schema_name, table_name):
            self.broken.append(("SYSTEM_CATALOG", shown))
        elif entry is None:
            self.broken.append(("TABLE_NOT_ALLOWED", shown))
        else:
            self.used_tables.add(entry)

    def _stored(self, identifier: exp.Identifier) -> str:
        return fold(self._dialect, identifier.this, quoted=bool(identifier.quoted))


_FULL = "write a LEFT JOIN UNION ALL a RIGHT JOIN of what has no match"
_ONE_EACH = "number the rows by ROW_NUMBER() OVER (PARTITION BY ...), and keep the first"
# By the server or its settings, a CTE is found by its name in any case or in its own alone.
_CTES_BY_SETTING = frozenset({"mysql", "tsql"})
_JOINS = frozenset({"", "INNER", "OUTER", "CROSS", "NATURAL"})
_JOINS_OF: Mapping[str, frozenset[str]] = {
    "duckdb": frozenset({"SEMI", "ANTI", "ASOF", "POSITIONAL"}),
    "mysql": frozenset({"STRAIGHT", "STRAIGHT_JOIN"}),
}
# What a server reads by a rule of its own, in which these need arguments.
_WITH_ARGUMENTS = frozenset({"coalesce", "greatest", "least", "nullif"})
_NO_WINDOWS = frozenset({"filter", "indexed"})
# Names of collations and of arguments.
_NO_DATA: frozenset[type[exp.Expr]] = frozenset({exp.Collate, exp.Kwarg})
# What stands before a part of a name, by the part.
_QUALIFIED: Mapping[type[exp.Expr], Mapping[str, str]] = {
    exp.Column: {"this": "table", "table": "db"},
    exp.Table: {"this": "db"},
}

# Their text is checked by a rule of its own, or is data that the writer escapes.
_SELF_CHECKED: frozenset[type[exp.Expr]] = frozenset(
    {
        exp.Identifier,
        exp.Literal,
        exp.RawString,
        exp.National,
        exp.Var,
        exp.DataType,
        exp.Anonymous,
    }
)


def _small_number(arguments: list[exp.Expr], place: int) -> bool:
    if place >= len(arguments):
        return False
    value = arguments[place]
    written = isinstance(value, exp.Literal) and not value.is_string and value.name.isdecimal()
    return written and int(value.name) <= _LARGEST_ARGUMENT


def _small_format(arguments: list[exp.Expr]) -> bool:
    """Whether the format is text written in the query that asks for no wide field."""
    value = arguments[0] if arguments else None
    if not isinstance(value, exp.Literal) or not value.is_string:
        return False
    return not _WIDE.search(value.name)
