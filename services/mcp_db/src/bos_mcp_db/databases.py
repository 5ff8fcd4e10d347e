"""The configured databases: each a backend behind a guard that is always on."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bos_chassis.auth.access import Access, AccessRules
from bos_errors import ConfigurationError
from bos_mcp_db.backends.backend import Backend, Limits, ListedBackend, Result, TableInfo
from bos_mcp_db.backends.mssql import MssqlBackend
from bos_mcp_db.backends.mssql_driver import driver_installed, parse_address, session_opener
from bos_mcp_db.backends.mssql_session import OpenSession
from bos_mcp_db.backends.mysql.backend import MySqlBackend
from bos_mcp_db.backends.mysql.session import parse_address as parse_mysql_address
from bos_mcp_db.backends.password_file import password_source
from bos_mcp_db.backends.postgres import PostgresBackend
from bos_mcp_db.backends.sqlite import SqliteBackend
from bos_mcp_db.concurrency_limiter import ConcurrencyLimiter
from bos_mcp_db.failures import NothingReadable, QueryRefused, UnknownDatabase, UnknownTable
from bos_mcp_db.names import split_table
from bos_mcp_db.settings import DatabaseSettings, McpDbSettings
from bos_sqlguard import Dialect, Guard, GuardPolicy, load_functions

_MOST_NARROWED = 64
_DIALECTS: dict[str, Dialect] = {
    "postgresql": "postgres",
    "postgres": "postgres",
    "sqlite": "sqlite",
    "mssql": "tsql",
    "sqlserver": "tsql",
    "mysql": "mysql",
    "mariadb": "mysql",
}

# About what PostgreSQL works off in the default time limit where it works fast: a scan of a hundred
# million rows costs a fifth of it, every row of a thousand with every other of three tables more.
_POSTGRES_COST = 10_000_000.0


@dataclass(frozen=True, slots=True)
class Database:
    """One database: what may be read, how much, and the way to it."""

    name: str
    description: str
    tables: tuple[str, ...]
    sample_values: int
    limits: Limits
    guard: Guard
    backend: Backend
    limiter: ConcurrencyLimiter
    role: str = ""
    """What reads in place of the user of the connection; empty: that user."""
    narrowed: bool = False
    """Whether this is less than what is readable at all."""

    def readable(self, access: Access) -> tuple[str, ...]:
        """The tables that a caller may read."""
        schema = self.backend.default_schema
        return tuple(
            entry
            for entry in self.tables
            if access.may_read(self.name, *split_table(entry, schema), default_schema=schema)
        )

    def reading(self, tables: tuple[str, ...], role: str) -> Database:
        """The same for callers who may read these of its tables alone, by this role.

        Raises:
            ConfigurationError: a role, where the database knows no such thing.
        """
        if tables == self.tables and not role:
            return self
        return replace(
            self,
            tables=tables,
            guard=self.guard.narrowed(tables),
            backend=self.backend.reading(tables, role),
            role=role,
            narrowed=True,
        )

    async def query(self, sql: str, limits: Limits) -> Result:
        """Check ``sql``, then run what the guard wrote. The guard cannot be turned off.

        Raises:
            QueryRefused: the guard's answer, with its violations.
            QueryFailure: what the backend raises.
        """
        verdict = self.guard.check(sql)
        if not verdict.is_safe:
            raise QueryRefused(verdict.user_message, verdict.violations)
        async with self.limiter.taken():
            return await self.backend.query(verdict.safe_sql, limits, verdict.kept)

    async def describe(self, tables: Sequence[str] = ()) -> list[TableInfo]:
        """Return the given tables, or all, as the database declares them.

        Raises:
            UnknownTable: a table that is not on the allow-list.
        """
        for table in tables:
            if table not in self.tables:
                raise UnknownTable(
                    f"The table {table!r} is not among the tables that may be read: "
                    f"{', '.join(self.tables)}."
                )
        async with self.limiter.taken():
            return await self.backend.describe(tables or self.tables)

    def lowered(
        self, max_rows: int | None, max_columns: int | None, timeout_s: float | None
    ) -> Limits:
        """Return the limits of this database, lowered as a caller wishes; never raised."""
        own = self.limits
        return replace(
            own,
            max_rows=min(own.max_rows, max_rows or own.max_rows),
            max_columns=min(own.max_columns, max_columns or own.max_columns),
            timeout_s=min(own.timeout_s, timeout_s or own.timeout_s),
        )


class Databases:
    """Finds databases by name, as those who ask may read them.

    Args:
        databases: By name, the default one first.
        rules: Who may read what.
    """

    def __init__(self, databases: Mapping[str, Database], rules: AccessRules) -> None:
        self._databases = dict(databases)
        self._rules = rules
        # The keys hold all that decides about a caller, so nothing is handed to a caller who may
        # read anything else: the groups that are defined, and what may be read by which role.
        self._readable: OrderedDict[tuple[str, ...], dict[str, tuple[str, ...]]] = OrderedDict()
        self._narrowed: OrderedDict[tuple[str, tuple[str, ...], str], Database] = OrderedDict()

    def all(self) -> list[Database]:
        """Return every database, the default one first."""
        return list(self._databases.values())

    def get(self, name: str, groups: Iterable[str]) -> Database:
        """Return what a user in these groups may read of the database called ``name``.

        An empty name means the first one of which that is anything.

        Raises:
            NothingReadable: the caller may read no table of any.
            UnknownDatabase: names the databases that the caller may read.
            ConflictingRoles: the groups read it by different roles.
        """
        access = self._rules.of(groups)
        readable = self._tables(access)
        if not readable:
            raise NothingReadable
        chosen = name or next(iter(readable))
        if chosen not in readable:
            known = ", ".join(readable)
            raise UnknownDatabase(f"There is no database {name!r}; configured: {known}.")
        return self._reading(chosen, readable[chosen], access.database_role(chosen))

    def by_role(self) -> list[Database]:
        """Return every database as each role reads it that a group may have; to try them.

        Raises:
            ConfigurationError: a role, where the database knows no such thing.
        """
        return [
            database.reading(database.tables, role)
            for name, roles in self._rules.database_roles().items()
            if (database := self._databases.get(name)) is not None
            for role in sorted(roles)
        ]

    def unknown(self) -> list[str]:
        """Return the names of databases that groups may read, and that are not here."""
        return sorted(self._rules.databases() - self._databases.keys())

    def _tables(self, access: Access) -> dict[str, tuple[str, ...]]:
        """What a caller may read, by database; databases of which that is nothing are left out."""
        if (known := self._readable.get(access.groups)) is None:
            found = {each.name: each.readable(access) for each in self._databases.values()}
            known = {each: tables for each, tables in found.items() if tables}
            self._readable[access.groups] = known
        self._readable.move_to_end(access.groups)
        while len(self._readable) > _MOST_NARROWED:
            self._readable.popitem(last=False)
        return known

    def _reading(self, name: str, tables: tuple[str, ...], role: str) -> Database:
        key = (name, tables, role)
        if key not in self._narrowed:
            self._narrowed[key] = self._databases[name].reading(tables, role)
        self._narrowed.move_to_end(key)
        while len(self._narrowed) > _MOST_NARROWED:
            self._narrowed.popitem(last=False)
        return self._narrowed[key]


@asynccontextmanager
async def open_databases(settings: McpDbSettings) -> AsyncIterator[Databases]:
    """Build every configured database; connections are made when they are needed.

    Raises:
        ConfigurationError: an unusable URL or allow-list; names the setting and the fix.
    """
    limits = limits_of(settings)
    async with AsyncExitStack() as stack:
        databases = {}
        for name, wanted in settings.named_databases().items():
            databases[name] = _build(name, wanted, limits, settings)
            stack.push_async_callback(databases[name].backend.aclose)
        yield Databases(databases, AccessRules(settings.access))


def limits_of(settings: McpDbSettings) -> Limits:
    """Return the limits that a query of any database has."""
    return Limits(
        max_rows=settings.max_rows,
        max_columns=settings.max_columns,
        max_bytes=settings.max_bytes,
        timeout_s=settings.timeout_s,
        max_estimated_cost=settings.max_estimated_cost or None,
        max_kept_bytes=settings.max_kept_mib * 1024 * 1024 or None,
    )


def _build(
    name: str, wanted: DatabaseSettings, limits: Limits, settings: McpDbSettings
) -> Database:
    url = wanted.url.get_secret_value()
    dialect = dialect_of(name, url)
    if dialect == "postgres" and settings.max_estimated_cost is None:
        limits = replace(limits, max_estimated_cost=_POSTGRES_COST)
    try:
        policy = GuardPolicy(
            dialect,
            frozenset(wanted.allowed_tables),
            default_schema=wanted.default_schema or schema_of(url, dialect),
            max_rows=limits.max_rows,
            max_columns=limits.max_columns,
        )
    except ValueError as error:
        raise ConfigurationError(
            f"Database {name!r}: {error}. List the tables one by one; there are no wildcards."
        ) from None
    return Database(
        name=name,
        description=wanted.description,
        tables=tuple(dict.fromkeys(wanted.allowed_tables)),
        sample_values=wanted.sample_values,
        limits=limits,
        guard=Guard(policy),
        backend=open_backend(name, url, policy, settings),
        limiter=ConcurrencyLimiter(settings.pool_size, settings.queue_timeout_s),
    )


def dialect_of(name: str, url: str) -> Dialect:
    """Return the dialect of the database at ``url``.

    Raises:
        ConfigurationError: a scheme of no database that can be read.
    """
    scheme = urlsplit(url).scheme
    if scheme not in _DIALECTS:
        raise ConfigurationError(
            f"Database {name!r}: the URL must start with postgresql://, mysql://, mariadb://,"
            " mssql:// or sqlite:///."
        )
    return _DIALECTS[scheme]


def schema_of(url: str, dialect: Dialect) -> str:
    """The schema that the URL names: a schema of MySQL is what others call a database."""
    return unquote(urlsplit(url).path.removeprefix("/")) if dialect == "mysql" else ""


def open_backend(
    name: str,
    url: str,
    policy: GuardPolicy,
    settings: McpDbSettings,
    *,
    catalogue_only: bool = False,
) -> ListedBackend:
    """Return the adapter for the database at ``url``; it connects when it is first asked.

    Args:
        name: Of the database, for messages.
        url: As in the settings.
        policy: What may be read.
        settings: Connections and limits.
        catalogue_only: For a connection of an administrator, which nothing else is read by.

    Raises:
        ConfigurationError: an unusable URL.
    """
    try:
        url, password = password_source(url, name)
    except ValueError as error:
        raise ConfigurationError(f"Database {name!r}: {error}.") from None
    if policy.dialect == "postgres":
        return PostgresBackend(
            url,
            password=password,
            default_schema=policy.default_schema,
            pool_size=settings.pool_size,
            work_mem_kib=settings.work_mem_kib,
        )
    if policy.dialect == "tsql":
        opener = _mssql_sessions(name, url, password)
        return MssqlBackend(
            opener,
            default_schema=policy.default_schema,
            threads=settings.pool_size,
            catalogue_only=catalogue_only,
        )
    if policy.dialect == "mysql":
        return _mysql_backend(name, url, password, policy)
    # sqlite:///relative.db and sqlite:////absolute.db, as is custom.
    parts = urlsplit(url)
    path = Path(unquote(parts.path.removeprefix("/")))
    if parts.netloc or not path.name:
        raise ConfigurationError(
            f"Database {name!r}: write sqlite:///relative/file.db or sqlite:////absolute/file.db."
        )
    return SqliteBackend(
        path,
        tables=tuple(policy.allowed_tables),
        functions=load_functions("sqlite").scalar,
        threads=settings.pool_size,
    )


def _mssql_sessions(name: str, url: str, password: Callable[[], str] | None) -> OpenSession:
    if not driver_installed():
        raise ConfigurationError(
            f"Database {name!r}: the driver for SQL Server is not installed. Install it with"
            " pip install 'bos-mcp-db[mssql]', or use a PostgreSQL or SQLite database."
        )
    try:
        return session_opener(parse_address(url, password))
    except ValueError as error:
        raise ConfigurationError(f"Database {name!r}: {error}.") from None


def _mysql_backend(
    name: str, url: str, password: Callable[[], str] | None, policy: GuardPolicy
) -> ListedBackend:
    try:
        address = parse_mysql_address(url, password)
    except ValueError as error:
        raise ConfigurationError(f"Database {name!r}: {error}.") from None
    if policy.default_schema != address.database:
        raise ConfigurationError(
            f"Database {name!r}: leave out default_schema: names without a schema are tables of"
            " the database in the URL."
        )
    return MySqlBackend(address, default_schema=address.database)
