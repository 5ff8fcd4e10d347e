"""PostgreSQL for every service that owns data: connections, migrations, and an embedded server."""

from bos_postgres.connections import acquire, connect, open_database, statement_errors
from bos_postgres.databases import create_database, drop_database
from bos_postgres.dsn import check_dsn, describe, with_database
from bos_postgres.embedded import EmbeddedPostgres
from bos_postgres.migrations import migrate, migration_files
from bos_postgres.notices import Notices
from bos_postgres.pool_metrics import PoolMetrics
from bos_postgres.row_security import acting_for, for_user
from bos_postgres.sessions import require_session_features
from bos_postgres.statements import execute, fetch, fetchrow, fetchval

__all__ = [
    "EmbeddedPostgres",
    "Notices",
    "PoolMetrics",
    "acquire",
    "acting_for",
    "check_dsn",
    "connect",
    "create_database",
    "describe",
    "drop_database",
    "execute",
    "fetch",
    "fetchrow",
    "fetchval",
    "for_user",
    "migrate",
    "migration_files",
    "open_database",
    "require_session_features",
    "statement_errors",
    "with_database",
]
