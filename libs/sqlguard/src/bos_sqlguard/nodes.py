"""The constructs a query may contain: classes of tree nodes, and the arguments each may carry.

A class that is not here is refused, and so is a listed class with an argument that is not here. A
new construct of a new sqlglot version is therefore refused until it is added on purpose.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

# fmt: off
_ARGUMENTS: Mapping[type[exp.Expr], str] = {
    # queries
    exp.Select: "with_ expressions distinct from_ joins laterals where group having windows qualify"
                " order limit offset",
    exp.Union: "with_ this expression distinct by_name order limit offset",
    exp.Intersect: "with_ this expression distinct order limit offset",
    exp.Except: "with_ this expression distinct order limit offset",
    exp.Subquery: "with_ this alias joins laterals order limit offset",
    exp.Values: "expressions alias",
    exp.With: "expressions recursive",
    exp.CTE: "this alias materialized",
    # sources
    exp.From: "this",
    exp.Table: "this db alias joins laterals ordinality",
    exp.TableAlias: "this columns",
    exp.Join: "this side kind method on using",
    exp.Lateral: "this alias cross_apply ordinality",
    exp.Unnest: "expressions alias offset",
    # clauses
    exp.Where: "this",
    exp.Group: "expressions all rollup cube grouping_sets",
    exp.Rollup: "expressions",
    exp.Cube: "expressions",
    exp.GroupingSets: "expressions",
    exp.Having: "this",
    exp.Qualify: "this",
    exp.Order: "this expressions",
    exp.Ordered: "this desc nulls_first",
    exp.Limit: "expression limit_options",
    exp.LimitOptions: "percent rows with_ties",
    exp.Fetch: "direction count limit_options",
    exp.Offset: "this expression",
    exp.Distinct: "expressions on",
    # windows and aggregates
    exp.Window: "this partition_by order spec alias over",
    exp.WindowSpec: "kind start start_side end end_side exclude",
    exp.Filter: "this expression",
    exp.WithinGroup: "this expression",
    exp.IgnoreNulls: "this",
    exp.RespectNulls: "this",
    # values and names
    exp.Column: "this table db",
    exp.Identifier: "this quoted",
    exp.Alias: "this alias",
    exp.Star: "",
    exp.Literal: "this is_string",
    exp.RawString: "this",
    exp.National: "this",
    exp.Boolean: "this",
    exp.Null: "",
    exp.Var: "this",
    exp.Paren: "this",
    exp.Tuple: "expressions",
    exp.Array: "expressions bracket_notation",
    exp.Bracket: "this expressions",
    exp.Slice: "this expression",
    exp.Interval: "this unit",
    exp.DataType: "this expressions nested values",
    exp.DataTypeParam: "this",
    exp.Kwarg: "this expression",
    # logic and comparison
    exp.And: "this expression",
    exp.Or: "this expression",
    exp.Not: "this",
    exp.EQ: "this expression",
    exp.NEQ: "this expression",
    exp.GT: "this expression",
    exp.GTE: "this expression",
    exp.LT: "this expression",
    exp.LTE: "this expression",
    exp.NullSafeEQ: "this expression",
    exp.NullSafeNEQ: "this expression",
    exp.Is: "this expression negate",
    exp.In: "this query expressions",
    exp.Between: "this low high symmetric",
    exp.Exists: "this",
    exp.Any: "this",
    exp.All: "this",
    exp.Like: "this expression negate",
    exp.ILike: "this expression negate",
    exp.SimilarTo: "this expression",
    exp.Glob: "this expression",
    exp.Escape: "this expression",
    exp.RegexpLike: "this expression",
    exp.RegexpILike: "this expression",
    exp.Collate: "this expression",
    exp.Case: "this ifs default",
    exp.If: "this true false",
    # arithmetic
    exp.Add: "this expression",
    exp.Sub: "this expression",
    exp.Mul: "this expression",
    exp.Div: "this expression typed safe",
    exp.Mod: "this expression",
    exp.IntDiv: "this expression",
    exp.Xor: "this expression",
    exp.Pow: "this expression",
    exp.Neg: "this",
    exp.DPipe: "this expression safe",
    exp.BitwiseAnd: "this expression",
    exp.BitwiseOr: "this expression",
    exp.BitwiseXor: "this expression",
    exp.BitwiseNot: "this",
    exp.BitwiseLeftShift: "this expression",
    exp.BitwiseRightShift: "this expression",
    # JSON and arrays
    exp.JSONExtract: "this expression",
    exp.JSONExtractScalar: "this expression",
    exp.JSONBExtract: "this expression",
    exp.JSONBExtractScalar: "this expression",
    exp.JSONBContainsTopKey: "this expression",
    exp.ArrayContainsAll: "this expression",
    exp.ArrayContainedBy: "this expression",
    exp.ArrayOverlaps: "this expression",
    # functions: by name, and those with a syntax of their own
    exp.Anonymous: "this expressions",
    exp.Cast: "this to",
    exp.TryCast: "this to safe",
    exp.Convert: "this expression style safe",
    exp.Extract: "this expression",
    exp.Substring: "this start length",
    exp.Trim: "this expression position",
    exp.StrPosition: "this substr",
    exp.AtTimeZone: "this zone",
    exp.CurrentDate: "",
    exp.CurrentTime: "",
    exp.CurrentTimestamp: "",
    exp.Localtime: "",
    exp.Localtimestamp: "",
}
# fmt: on

NODES: Mapping[type[exp.Expr], frozenset[str]] = {
    node: frozenset(arguments.split()) for node, arguments in _ARGUMENTS.items()
}

# What a refused construct is called in a violation; everything else is NODE_NOT_ALLOWED.
NODE_RULES: Mapping[type[exp.Expr], str] = {
    exp.Lock: "LOCKING",
    exp.Into: "INTO",
    exp.Hint: "HINT",
    exp.WithTableHint: "HINT",
    exp.QueryOption: "HINT",
    exp.Placeholder: "PARAMETER",
    exp.Parameter: "PARAMETER",
    exp.SessionParameter: "PARAMETER",
    exp.Dot: "FUNCTION_NOT_ALLOWED",
}
ARGUMENT_RULES: Mapping[tuple[type[exp.Expr], str], str] = {
    (exp.Select, "locks"): "LOCKING",
    (exp.Select, "into"): "INTO",
    (exp.Select, "hint"): "HINT",
    (exp.Select, "options"): "HINT",
    (exp.Table, "hints"): "HINT",
    (exp.Join, "hint"): "HINT",
    # SQLite reads a whole table in `x IN name`.
    (exp.In, "field"): "TABLE_NOT_ALLOWED",
    (exp.Table, "catalog"): "TABLE_NOT_ALLOWED",
}

# What a dialect hands to a function that an application may have added: SQLite's REGEXP. What only
# one of them has, and what is spelled differently when it is written: paths into JSON of DuckDB.
_ELSEWHERE: Mapping[type[exp.Expr], str] = {exp.Qualify: "NODE_NOT_ALLOWED"}
DIALECT_RULES: Mapping[str, Mapping[type[exp.Expr], str]] = {
    "duckdb": {
        exp.JSONExtract: "NODE_NOT_ALLOWED",
        exp.JSONExtractScalar: "NODE_NOT_ALLOWED",
    },
    "mysql": _ELSEWHERE,
    "postgres": _ELSEWHERE,
    "tsql": {exp.Interval: "RESERVED_WORD", **_ELSEWHERE},
    "sqlite": {
        exp.Interval: "RESERVED_WORD",
        exp.RegexpLike: "FUNCTION_NOT_ALLOWED",
        exp.RegexpILike: "FUNCTION_NOT_ALLOWED",
        **_ELSEWHERE,
    },
}

# Where a name may stand; anywhere else it could be one of a table.
NAME_PLACES: Mapping[type[exp.Expr], frozenset[str]] = {
    exp.Column: frozenset({"this", "table", "db"}),
    exp.Table: frozenset({"this", "db"}),
    exp.TableAlias: frozenset({"this", "columns"}),
    exp.Alias: frozenset({"alias"}),
    exp.Join: frozenset({"using"}),
    exp.Window: frozenset({"this", "alias"}),
    exp.Unnest: frozenset({"offset"}),
    exp.Collate: frozenset({"expression"}),
    exp.Kwarg: frozenset({"this"}),
    exp.Anonymous: frozenset({"this"}),  # a quoted function name, which no list has
}

_COMMON_TYPES = (
    "SMALLINT INT BIGINT DECIMAL FLOAT DOUBLE BOOLEAN TEXT VARCHAR CHAR DATE TIME TIMESTAMP"
)
TYPES: Mapping[str, frozenset[str]] = {
    "duckdb": frozenset(
        f"{_COMMON_TYPES} TINYINT INT128 TIMESTAMPNTZ TIMESTAMPTZ INTERVAL UUID".split()
    ),
    "mysql": frozenset(f"{_COMMON_TYPES} UBIGINT DATETIME TIMESTAMPTZ JSON".split()),
    "postgres": frozenset(
        f"{_COMMON_TYPES} TIMETZ TIMESTAMPTZ INTERVAL UUID JSON JSONB ARRAY".split()
    ),
    "sqlite": frozenset(f"{_COMMON_TYPES} TINYINT VARBINARY BLOB DATETIME".split()),
    "tsql": frozenset(
        f"{_COMMON_TYPES} TINYINT UTINYINT BIT NVARCHAR NCHAR DATETIME DATETIME2 SMALLDATETIME"
        " TIMESTAMPTZ MONEY SMALLMONEY UUID".split()
    ),
}
