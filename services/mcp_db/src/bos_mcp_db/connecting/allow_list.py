"""Proposed allow-list: all tables but those that look like secrets, each with the reason."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from bos_errors import InvalidArgument
from bos_mcp_db.connecting.texts import one_line, words
from bos_mcp_db.names import split_table
from bos_sqlguard import GuardPolicy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bos_mcp_db.backends.backend import TableInfo
    from bos_sqlguard import Dialect

# Both the setting, divided by commas and dots, and the script of the role hold names as they are.
_WRITABLE = re.compile(r"[\w$](?:[\w$ -]*[\w$])?")
_SECRET_PARTS: Final = (
    "password",
    "passwd",
    "passphrase",
    "secret",
    "credential",
    "token",
    "apikey",
    "accesskey",
    "privatekey",
    "sessionkey",
)
_SECRET_WORDS: Final = frozenset({"pwd", "otp", "totp", "cvv", "cvc"})
# About a secret, and none itself: token_id, password_changed_at.
_ABOUT: Final = frozenset({"at", "count", "date", "expires", "expiry", "id", "on"})
_PERSONAL_PARTS: Final = (
    "email",
    "phone",
    "mobile",
    "iban",
    "cardnumber",
    "ssn",
    "passport",
    "birth",
    "salary",
    "salaries",
)
_BOOKKEEPING: Final = frozenset(
    {
        "alembic_version",
        "ar_internal_metadata",
        "django_migrations",
        "flyway_schema_history",
        "knex_migrations",
        "schema_migrations",
        "__efmigrationshistory",
    }
)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A table that is not proposed."""

    table: str
    reason: str
    kind: Literal["table", "view", "unknown"] = "unknown"


@dataclass(frozen=True, slots=True)
class Proposal:
    """What of a database may be read, and what to look at before it is."""

    tables: tuple[TableInfo, ...]
    left_out: tuple[LeftOut, ...]
    to_check: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The allow-list."""
        return tuple(table.name for table in self.tables)


def unwritable(
    listed: Iterable[tuple[str, str]], dialect: Dialect, default_schema: str
) -> dict[tuple[str, str], str]:
    """Reason by table that no allow-list can name."""
    reasons = {}
    for schema, name in listed:
        if not (_WRITABLE.fullmatch(schema) and _WRITABLE.fullmatch(name)):
            reasons[(schema, name)] = "its name cannot be written in an allow-list"
            continue
        try:
            GuardPolicy(dialect, frozenset({f"{schema}.{name}"}), default_schema=default_schema)
        except ValueError:
            reasons[(schema, name)] = "it is called like a system catalogue"
    return reasons


def propose(
    tables: Sequence[TableInfo],
    sources: Mapping[str, frozenset[str]] | None,
    *,
    include: Iterable[str] = (),
    exclude: Iterable[str] = (),
) -> Proposal:
    """Divide tables into those to allow and those that are left out.

    Args:
        tables: What there is.
        sources: What each view reads; None: unknown.
        include: Tables to allow, also those that look like secrets.
        exclude: Tables to leave out besides.

    Raises:
        InvalidArgument: a table that does not exist, or is in both; names the option.
    """
    wanted, unwanted = set(include), set(exclude)
    known = {table.name for table in tables}
    _check_options(wanted, unwanted, known)
    reasons = {
        table.name: reason
        for table in tables
        if (reason := "excluded by --exclude" if table.name in unwanted else _secret(table))
        and table.name not in wanted
    }
    hidden = frozenset(reasons)
    for table in tables:
        if table.kind == "table" or table.name in wanted | hidden:
            continue
        if reason := _reveals(table, sources, hidden):
            reasons[table.name] = reason
    kept = tuple(
        _within(table, known - reasons.keys()) for table in tables if table.name not in reasons
    )
    return Proposal(
        tables=kept,
        left_out=tuple(
            LeftOut(table.name, reasons[table.name], table.kind)
            for table in tables
            if table.name in reasons
        ),
        to_check=tuple(line for table in kept for line in _doubts(table)),
    )


def _check_options(wanted: set[str], unwanted: set[str], known: set[str]) -> None:
    for option, names in (("--include", wanted), ("--exclude", unwanted)):
        if missing := sorted(names - known):
            raise InvalidArgument(
                f"{option}: there is no table {one_line(missing[0])!r}, or it cannot be allowed."
                " Spell it as the database does, with its schema if that is not the default one."
            )
    if both := sorted(wanted & unwanted):
        raise InvalidArgument(f"{one_line(both[0])!r} is in --include and in --exclude.")


def _reveals(
    view: TableInfo, sources: Mapping[str, frozenset[str]] | None, hidden: frozenset[str]
) -> str:
    """Why a view may show what is left out, under any name; empty if it does not.

    A view reads with the rights of its owner.
    """
    if sources is None:
        return "it is a view, and may show rows of what is left out" if hidden else ""
    read = sources.get(view.name)
    if read is None:
        return "it is a view of what cannot be found out"
    if revealed := sorted(read & hidden):
        return f"it is a view of {one_line(revealed[0], 60)}, which is left out"
    return ""


def _within(table: TableInfo, names: set[str]) -> TableInfo:
    """The table without keys that point at tables which are left out: they would reveal those."""
    return replace(table, foreign_keys=[key for key in table.foreign_keys if key.table in names])


def _secret(table: TableInfo) -> str:
    """Why a table looks like one that holds secrets; empty if it does not."""
    _, bare = split_table(table.name, "")
    if bare.casefold() in _BOOKKEEPING:
        return "bookkeeping of migrations"
    if not table.columns:
        return "none of its columns can be read"
    if _is_secret(bare):
        return "its name looks like secrets"
    for column in table.columns:
        if _holds_secrets(column.name):
            return f"its column {one_line(column.name, 60)!r} looks like a secret"
    return ""


def _doubts(table: TableInfo) -> Iterable[str]:
    """What a person should look at before a table is allowed."""
    personal = [
        column.name
        for column in table.columns
        if any(part in "".join(words(column.name)) for part in _PERSONAL_PARTS)
    ]
    if personal:
        named = ", ".join(one_line(name, 60) for name in personal[:5])
        yield f"{table.name} seems to hold personal data ({named})"
    if table.kind == "view":
        yield f"{table.name} is a view: it shows what its owner may read"
    secrets = [column.name for column in table.columns if _holds_secrets(column.name)]
    if secrets:
        yield f"{table.name} is included, although {one_line(secrets[0], 60)!r} looks like a secret"


def _holds_secrets(column: str) -> bool:
    return _is_secret(column) and words(column)[-1] not in _ABOUT


def _is_secret(name: str) -> bool:
    parts = words(name)
    squashed = "".join(parts)
    return not _SECRET_WORDS.isdisjoint(parts) or any(part in squashed for part in _SECRET_PARTS)
