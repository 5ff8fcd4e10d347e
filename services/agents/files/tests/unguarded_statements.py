"""Program of a test: runs statements by a locked DuckDB, without any guard, and counts the answers.

It reads a list of statements as JSON from its standard input. After one that is no query
they get another DuckDB; all have the tables that a user would have, and are interrupted if they
run on.
"""

import json
import re
import resource
import sys
import threading
from typing import Any

import duckdb

from bos_files.queries.limits import QueryLimits
from bos_files.queries.worker import connect, lock

LIMITS = QueryLimits(memory_mib=128, threads=1)
LONGEST_S = 0.5
SHARED = 10
QUERY = re.compile(r"[(\s]*(SELECT|WITH|VALUES|FROM)\b", re.IGNORECASE)
MEMORY_BYTES = 1024 * 1024 * 1024
TABLES = """
CREATE TABLE orders AS SELECT 1 AS order_id, 1 AS customer_id, 5 AS amount, 'open' AS status,
    'x' AS note, DATE '2025-01-31' AS placed_on;
CREATE TABLE customers AS SELECT 1 AS customer_id, 'Asha' AS name, 'a@example.com' AS email;
CREATE TABLE products AS SELECT 1 AS product_id, 'a' AS name, ['a'] AS tags;
"""


def main() -> None:
    statements = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    leaked, answered = [], 0
    connection, used = fresh(), 0
    for statement in statements:
        rows = run(connection, statement)
        used += 1
        # A query changes nothing, so the next one finds the same tables.
        if not QUERY.match(statement) or ";" in statement or used == SHARED:
            connection.close()
            connection, used = fresh(), 0
        answered += bool(rows)
        if "canary" in str(rows):
            leaked.append(statement)
    json.dump({"statements": len(statements), "leaked": leaked, "answered": answered}, sys.stdout)


def fresh() -> duckdb.DuckDBPyConnection:
    connection = connect(LIMITS)
    connection.execute(TABLES)
    lock(connection)
    return connection


def run(connection: duckdb.DuckDBPyConnection, statement: str) -> list[Any]:
    """Rows of a statement, its result's or of the error."""
    watch = threading.Timer(LONGEST_S, connection.interrupt)
    watch.start()
    try:
        found = connection.execute(statement)
        # An empty statement has no result.
        return [] if found is None else found.fetchmany(200)
    except (duckdb.Error, RuntimeError, MemoryError, UnicodeError):
        return []
    finally:
        watch.cancel()


if __name__ == "__main__":
    main()
