"""Process of one query: loads files into an empty DuckDB, locks it, answers, and ends.

It gets a request and the files on its standard input and writes one reply. It has no environment
and no network; before the query runs, DuckDB is locked, and the process can open or write no file.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
from collections.abc import Collection
from dataclasses import asdict
from typing import Any, BinaryIO, Final

import duckdb

from bos_files.queries.cells import encode, is_exact, parse, size
from bos_files.queries.limits import QueryLimits
from bos_files.queries.loading import Loader
from bos_files.queries.rejections import FileRejected

_MIB: Final = 1024 * 1024
_CODE_MIB: Final = 1024
"""Address space for the interpreter, DuckDB's code and its threads, and what is read."""
_MAX_REQUEST_BYTES: Final = 16 * _MIB
_FETCH: Final = 200
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38
_CLONE_NEWNET, _CLONE_NEWUSER = 0x40000000, 0x10000000
_TYPES: Final = {
    "BOOLEAN": "bool",
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT"), "int64"),
    **dict.fromkeys(("UTINYINT", "USMALLINT", "UINTEGER"), "int64"),
    **dict.fromkeys(("HUGEINT", "UHUGEINT", "UBIGINT", "DECIMAL"), "decimal"),
    **dict.fromkeys(("FLOAT", "DOUBLE"), "double"),
    "VARCHAR": "string",
    "DATE": "date",
    "BLOB": "bytes",
}


def main() -> int:
    """Answer one request; returns the exit code."""
    source = sys.stdin.buffer
    request = json.loads(_exactly(source, min(_length(source), _MAX_REQUEST_BYTES)))
    limits = QueryLimits(**request["limits"])
    _give_up(limits)
    try:
        reply = _answer(request, limits, source)
    except FileRejected as rejected:
        reply = {"rejected": str(rejected)}
    except (MemoryError, duckdb.OutOfMemoryException):
        reply = {"too_large": True}
    except duckdb.Error as error:
        reply = {"failed": str(error).partition("\n\n")[0]}
    sys.stdout.buffer.write(json.dumps(reply, ensure_ascii=False).encode("utf-8", "replace"))
    sys.stdout.buffer.flush()
    # DuckDB's threads are not waited for.
    os._exit(0)


def _answer(request: dict[str, Any], limits: QueryLimits, source: BinaryIO) -> dict[str, Any]:
    connection = connect(limits)
    loader = Loader(connection, limits)
    tables = []
    for file in request["files"]:
        content = _exactly(source, int(file["size"]))
        tables = loader.load(content, str(file["kind"]), file["tables"])
    if request["sql"] is None:
        return {"tables": [asdict(table) for table in tables]}
    lock(connection)
    seal()
    return run(connection, str(request["sql"]), limits)


def connect(limits: QueryLimits) -> duckdb.DuckDBPyConnection:
    """Return an empty in-memory DuckDB without extensions and without spilling to disk."""
    connection = duckdb.connect(
        ":memory:",
        config={
            "memory_limit": f"{limits.memory_mib}MiB",
            "threads": str(limits.threads),
            "temp_directory": "",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allow_community_extensions": "false",
            "allow_persistent_secrets": "false",
            "python_enable_replacements": "false",
        },
    )
    # Moments are read and shown in UTC, not in the zone of the machine.
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def lock(connection: duckdb.DuckDBPyConnection) -> None:
    """From here on DuckDB reaches no file, no network and no extension, and no setting changes."""
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def seal() -> None:
    """From here on the process opens no file and no connection, and writes to no file."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))


def run(connection: duckdb.DuckDBPyConnection, sql: str, limits: QueryLimits) -> dict[str, Any]:
    """Run one query and return its rows; anything but a single SELECT is refused."""
    statements = connection.extract_statements(sql)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        return {"failed": "Only one SELECT statement is run."}
    relation = connection.sql(sql)
    kinds = relation.types
    if len(kinds) > limits.max_columns:
        return {"failed": f"The query returns {len(kinds)} columns, more than may be."}
    texts = {place: str(kind) for place, kind in enumerate(kinds) if not is_exact(kind)}
    connection.execute(_with_texts(sql, len(kinds), texts) if texts else statements[0])
    rows: list[list[Any]] = []
    taken, truncated = 0, False
    while not truncated and (part := connection.fetchmany(_FETCH)):
        for row in part:
            taken += size(row)
            if len(rows) == limits.max_rows or (taken > limits.max_bytes and rows):
                truncated = True
                break
            if taken > limits.max_bytes:
                return {"failed": f"One row exceeds {limits.max_bytes} bytes."}
            rows.append(
                [
                    encode(parse(cell, texts[place]) if place in texts else cell)
                    for place, cell in enumerate(row)
                ]
            )
    return {
        "columns": relation.columns,
        "types": [_type(str(kind)) for kind in kinds],
        "rows": rows,
        "truncated": truncated,
    }


def _with_texts(sql: str, count: int, texts: Collection[int]) -> str:
    """The query with these columns as DuckDB writes them; it keeps the order of rows."""
    names = [f"column_{place}" for place in range(count)]
    cells = [f"CAST({each} AS VARCHAR)" if at in texts else each for at, each in enumerate(names)]
    query = sql.rstrip("; \n")
    return f"SELECT {', '.join(cells)} FROM ({query}\n) AS given ({', '.join(names)})"  # noqa: S608


def _type(declared: str) -> str:
    """The lower-case name of a ``bos.common.v1.ColumnType``."""
    if declared.startswith("TIMESTAMP"):
        return "timestamp"
    if declared.endswith("]") or declared.startswith(("STRUCT(", "MAP(")):
        return "structured"
    return _TYPES.get(declared.partition("(")[0], "string")


def _give_up(limits: QueryLimits) -> None:
    """Give up the network, new privileges, and memory and time beyond the limits."""
    libc = ctypes.CDLL(None, use_errno=True)
    with contextlib.suppress(AttributeError):  # only Linux has these
        if os.geteuid() == 0:
            libc.unshare(_CLONE_NEWNET)
        else:
            libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET)
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    memory = (limits.memory_mib + _CODE_MIB) * _MIB
    seconds = max(1, round(limits.timeout_s * limits.threads)) + 1
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    # A CSV file is written once for DuckDB, in UTF-8, which may take three times as much.
    resource.setrlimit(resource.RLIMIT_FSIZE, (4 * limits.max_file_bytes,) * 2)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))


def _length(source: BinaryIO) -> int:
    return int.from_bytes(_exactly(source, 4), "big")


def _exactly(source: BinaryIO, length: int) -> bytes:
    data = source.read(length)
    if len(data) != length:
        raise EOFError("the request was cut off")
    return data


if __name__ == "__main__":
    sys.exit(main())
