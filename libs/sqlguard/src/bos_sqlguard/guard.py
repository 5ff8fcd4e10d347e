"""The guard: a query in, a verdict out. No I/O; fails closed."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from copy import copy
from dataclasses import dataclass, replace

from sqlglot import Token, TokenType, exp
from sqlglot.errors import ParseError, TokenError, UnsupportedError

from bos_sqlguard.bounded import TooComplex
from bos_sqlguard.grammar import Grammar
from bos_sqlguard.growth import GrowthCheck, Kept, kept_by
from bos_sqlguard.growth.sizes import Size
from bos_sqlguard.inspection import Inspection
from bos_sqlguard.limits import (
    LimitNotLiteral,
    count_columns,
    count_listed_rows,
    write_row_limit,
)
from bos_sqlguard.names import Dialect
from bos_sqlguard.policy import GuardPolicy, load_functions
from bos_sqlguard.rules import Violation, load_rules
from bos_sqlguard.wording import same_text, same_wording

# Words that change or execute something, in any dialect.
FORBIDDEN_KEYWORDS = frozenset(
    {
        "CREATE", "DROP", "ALTER", "TRUNCATE", "INSERT", "UPDATE", "DELETE", "MERGE",
        "GRANT", "REVOKE", "CALL", "EXEC", "EXECUTE", "INVOKE",
    }
)  # fmt: skip
_OPENING = frozenset({TokenType.SELECT, TokenType.WITH, TokenType.VALUES, TokenType.L_PAREN})
_NOT_WORDS = frozenset(
    {
        TokenType.STRING,
        TokenType.NATIONAL_STRING,
        TokenType.RAW_STRING,
        TokenType.HEREDOC_STRING,
        TokenType.IDENTIFIER,
        TokenType.NUMBER,
    }
)
_SIGNS = frozenset({TokenType.SEMICOLON, TokenType.L_PAREN, TokenType.R_PAREN, TokenType.L_BRACKET})
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")
# Followed by these OVER opens a window; by others it is a name.
_WINDOW = frozenset({TokenType.L_PAREN, TokenType.VAR, TokenType.IDENTIFIER})
_BEFORE_NAMES = frozenset({TokenType.DOT, TokenType.ALIAS, TokenType.DCOLON})
# The parser would take a column called interval, and what is done with it, for an interval.
_AFTER_INTERVAL: Mapping[Dialect, frozenset[str]] = {
    "duckdb": frozenset("+-*"),
    "postgres": frozenset("+-*("),
}
_MISREAD: Mapping[Dialect, frozenset[str]] = {
    "duckdb": frozenset({"EXPORT_STATE", "ISNULL", "NOTNULL"}),
    "postgres": frozenset({"ISNULL", "NOTNULL", "REGEXP", "RLIKE"}),
    "mysql": frozenset({"NOTNULL"}),
    "sqlite": frozenset({"ISNULL", "NOTNULL"}),
}
_SYNTAX = frozenset(
    {
        "TEXT", "PARSE", "RESERVED_WORD", "TOO_COMPLEX", "SINGLE_STATEMENT", "SELECT_ONLY",
        "GUARD_ERROR",
    }
)  # fmt: skip
_MAX_CHARACTERS = 20_000
_MAX_TOKENS = 5_000
_MAX_DEPTH = 60
# sqlglot looks at everything before a bracket again for each bracket.
_MAX_BRACKETS = 50


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict of the guard on one query.

    Attributes:
        dialect: the dialect the query was read in.
        is_safe: whether it may run.
        safe_sql: the query to run, written from the checked tree; empty when refused.
        violations: every broken rule; empty when safe.
        user_message: one sentence for people when refused; else empty.
        used_tables: the tables it reads, spelled as in the allow-list, sorted; CTEs are not tables.
        limited: whether the guard wrote or lowered the row limit.
        kept: what its aggregates hold of its rows, for who can ask how many there are; None if
            nothing.
    """

    dialect: Dialect
    is_safe: bool
    safe_sql: str = ""
    violations: tuple[Violation, ...] = ()
    user_message: str = ""
    used_tables: tuple[str, ...] = ()
    limited: bool = False
    kept: Kept | None = None


class _Refused(Exception):
    def __init__(self, *broken: tuple[str, str]) -> None:
        super().__init__(broken)
        self.broken = broken


class Guard:
    """Checks queries against one policy. Holds no state between queries; safe to share."""

    def __init__(self, policy: GuardPolicy) -> None:
        self.policy = policy
        self._rules = load_rules()
        self._functions = load_functions(policy.dialect)
        self._tables = policy.table_index()
        self._grammar = Grammar(policy.dialect)

    def narrowed(self, tables: Collection[str]) -> Guard:
        """Return the same guard for some of the tables; what it has read for itself is shared.

        Raises:
            ValueError: a table that this guard does not allow.
        """
        if foreign := set(tables) - self.policy.allowed_tables:
            raise ValueError(f"not on the allow-list: {', '.join(sorted(foreign))}")
        part = copy(self)
        part.policy = replace(self.policy, allowed_tables=frozenset(tables))
        part._tables = part.policy.table_index()
        return part

    def check(self, sql: str) -> Verdict:
        """Return whether ``sql`` may run, and the text to run.

        Never raises: what cannot be checked is refused. Checking ``safe_sql`` again returns it
        unchanged.
        """
        try:
            return self._check(sql)
        except _Refused as refusal:
            return self._refusal(refusal.broken)
        except (RecursionError, TooComplex):
            return self._refusal((("TOO_COMPLEX", "nested too deeply"),))
        except Exception as error:  # a guard that fails must refuse
            return self._refusal((("GUARD_ERROR", type(error).__name__),))

    def check_syntax(self, sql: str) -> Violation | None:
        """Return why this dialect cannot read ``sql``, or None; for variants that never run."""
        verdict = self.check(sql)
        return next((v for v in verdict.violations if v.rule in _SYNTAX), None)

    def _refusal(self, broken: tuple[tuple[str, str], ...]) -> Verdict:
        unique = dict.fromkeys(broken)
        violations = tuple(self._rules[rule].violation(detail) for rule, detail in unique)
        reasons = "; ".join(violation.message for violation in violations)
        return Verdict(
            dialect=self.policy.dialect,
            is_safe=False,
            violations=violations,
            user_message=f"The query was refused: {reasons}.",
        )

    def _check(self, sql: str) -> Verdict:
        tokens = self._tokens(sql)
        tree = self._parse(tokens, sql)
        used_tables, keeping = self._inspect(tree)
        limited = self._limit(tree)
        kept = kept_by(tree, keeping, self._write)
        safe_sql = self._write(tree)
        # A query that an earlier check wrote comes back as it was and needs no second reading.
        if safe_sql != sql and not same_text(tokens, sql, safe_sql):
            self._check_written(tokens, safe_sql, used_tables)
        return Verdict(
            dialect=self.policy.dialect,
            is_safe=True,
            safe_sql=safe_sql,
            used_tables=tuple(sorted(used_tables)),
            limited=limited,
            kept=kept,
        )

    def _check_written(self, tokens: list[Token], safe_sql: str, used_tables: set[str]) -> None:
        """Read and inspect the text that will run: writing must not change its meaning.

        Where writing changed no word, the tree would be the one that was inspected already.
        """
        written = self._tokens(safe_sql)
        if same_wording(tokens, written):
            return
        if self._inspect(self._parse(written, safe_sql))[0] != used_tables:
            raise _Refused(("UNSTABLE", ""))

    def _inspect(self, tree: exp.Expr) -> tuple[set[str], list[tuple[str, Size]]]:
        """Return the tables ``tree`` reads, and its calls that keep values."""
        inspection = Inspection(self.policy, self._tables, self._functions)
        inspection.walk(tree)
        if inspection.broken:
            raise _Refused(*inspection.broken)
        growth = GrowthCheck(self.policy.dialect)
        growth.check(tree)
        if growth.broken:
            raise _Refused(*growth.broken)
        return inspection.used_tables, growth.kept

    def _tokens(self, sql: str) -> list[Token]:
        """Return the words of ``sql`` without semicolons at the end."""
        if len(sql) > _MAX_CHARACTERS:
            raise _Refused(("TEXT", f"longer than {_MAX_CHARACTERS} characters"))
        if found := _CONTROL.search(sql):
            raise _Refused(("TEXT", f"control character U+{ord(found.group()):04X}"))
        try:
            tokens = self._grammar.tokens(sql)
        except TokenError:
            raise _Refused(("PARSE", "a string, name or comment does not end")) from None
        while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
            tokens.pop()
        _check_tokens(tokens)
        _check_misread_names(self.policy.dialect, tokens)
        if self.policy.dialect == "mysql":
            _check_comments(tokens)
        return tokens

    def _parse(self, tokens: list[Token], sql: str) -> exp.Expr:
        try:
            trees = self._grammar.parse(tokens, sql)
        except ParseError as error:
            raise _Refused(("PARSE", _place(error))) from None
        if len(trees) != 1:
            raise _Refused(("SINGLE_STATEMENT", f"{len(trees)} statements"))
        if not isinstance(trees[0], exp.Select | exp.SetOperation | exp.Subquery | exp.Values):
            raise _Refused(("SELECT_ONLY", trees[0].key))
        return trees[0]

    def _limit(self, tree: exp.Expr) -> bool:
        policy = self.policy
        if (columns := count_columns(tree)) > policy.max_columns:
            raise _Refused(("TOO_MANY_COLUMNS", f"{columns}, at most {policy.max_columns}"))
        if (rows := count_listed_rows(tree)) > policy.max_rows + 1:
            raise _Refused(("TOO_MANY_ROWS", f"{rows}, at most {policy.max_rows}"))
        try:
            return write_row_limit(tree, policy.max_rows + 1)
        except LimitNotLiteral as error:
            raise _Refused(("LIMIT_NOT_LITERAL", str(error))) from None

    def _write(self, tree: exp.Expr) -> str:
        try:
            return self._grammar.write(tree)
        except UnsupportedError:
            raise _Refused(("NODE_NOT_ALLOWED", "an expression this dialect lacks")) from None


def _check_tokens(tokens: list[Token]) -> None:
    """The net on words: one statement, reading, no forbidden keyword outside text and quotes."""
    if not tokens:
        raise _Refused(("PARSE", "the query is empty"))
    if len(tokens) > _MAX_TOKENS:
        raise _Refused(("TOO_COMPLEX", f"more than {_MAX_TOKENS} words and signs"))
    broken: list[tuple[str, str]] = []
    depth = brackets = 0
    for token in tokens:
        kind = token.token_type
        if kind in _NOT_WORDS:
            continue
        if kind not in _SIGNS:
            if (word := token.text.upper()) in FORBIDDEN_KEYWORDS:
                broken.append(("KEYWORD", word))
        elif kind == TokenType.SEMICOLON:
            broken.append(("SINGLE_STATEMENT", "more than one"))
        elif kind == TokenType.L_BRACKET:
            brackets += 1
            if brackets > _MAX_BRACKETS:
                raise _Refused(("TOO_COMPLEX", f"more than {_MAX_BRACKETS} brackets"))
        else:
            depth += 1 if kind == TokenType.L_PAREN else -1
            if depth > _MAX_DEPTH:
                raise _Refused(("TOO_COMPLEX", f"more than {_MAX_DEPTH} nested parentheses"))
    if tokens[0].token_type not in _OPENING:
        broken.insert(0, ("SELECT_ONLY", tokens[0].text))
    if broken:
        raise _Refused(*broken)


def _check_misread_names(dialect: Dialect, tokens: list[Token]) -> None:
    """Refuse names that the parser takes for keywords where the server does not, or the reverse.

    ``SELECT fetch - 1`` would be a limit of one row, ``regexp - 1`` the complement of -1;
    SQLite reads ``SELECT amount notnull`` as a comparison, the parser as a name of the column.
    """
    misread = _MISREAD.get(dialect, frozenset())
    for place, token in enumerate(tokens):
        if token.token_type in _NOT_WORDS or (
            place and tokens[place - 1].token_type in _BEFORE_NAMES
        ):
            continue
        word = token.text.upper()
        following = tokens[place + 1] if place + 1 < len(tokens) else None
        after = following.text.upper() if following is not None else ""
        if (
            word in misread
            or (word == "FETCH" and after not in ("FIRST", "NEXT"))
            or (word == "INTERVAL" and after in _AFTER_INTERVAL.get(dialect, ()))
            or (word == "OVER" and following is not None and following.token_type not in _WINDOW)
        ):
            raise _Refused(("RESERVED_WORD", token.text))


def _check_comments(tokens: list[Token]) -> None:
    """Refuse ``/*! … */``, which MySQL runs: it is never written, and would change the answer."""
    for token in tokens:
        if any(comment.startswith(("!", "M!")) for comment in token.comments):
            raise _Refused(("NODE_NOT_ALLOWED", "of a comment that the server would run"))


def _place(error: ParseError) -> str:
    """Say where parsing stopped, without repeating the parser's own wording."""
    if not error.errors:
        return "unexpected end"
    first = error.errors[0]
    return f"near {first['highlight']!r} (line {first['line']}, column {first['col']})"


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The verdicts on the variants of one query."""

    by_dialect: Mapping[Dialect, Verdict]

    @property
    def is_safe(self) -> bool:
        """Whether every variant is safe."""
        return all(verdict.is_safe for verdict in self.by_dialect.values())

    @property
    def violations(self) -> tuple[Violation, ...]:
        """Every broken rule of every variant."""
        return tuple(v for verdict in self.by_dialect.values() for v in verdict.violations)

    @property
    def user_message(self) -> str:
        """The message of the first refused variant; empty when all are safe."""
        messages = (verdict.user_message for verdict in self.by_dialect.values())
        return next((message for message in messages if message), "")

    def safe_sql(self, dialect: Dialect) -> str:
        """The rewritten variant of ``dialect``; empty when it was refused or not given."""
        verdict = self.by_dialect.get(dialect)
        return verdict.safe_sql if verdict else ""


def check_both(policy: GuardPolicy, variants: Mapping[Dialect, str]) -> Verdicts:
    """Check the variants of one query, each in its dialect, under one policy."""
    guards = {dialect: Guard(policy.for_dialect(dialect)) for dialect in variants}
    return Verdicts({dialect: guards[dialect].check(sql) for dialect, sql in variants.items()})
