"""Files become tables with types; files that are none are refused, with the reason."""

import io
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import xlsxwriter
from duckdb import DuckDBPyConnection

from bos_files.queries.engine import QueryEngine
from bos_files.queries.limits import QueryLimits
from bos_files.queries.loading import Loader
from bos_files.queries.rejections import FileRejected
from bos_files.queries.worker import connect

from .file_tables import SALES, bomb, parquet, table_file, workbook

_TEN = datetime(2025, 1, 31, 10)  # noqa: DTZ001 - cells have no zone
_DAY = datetime(2025, 1, 31)  # noqa: DTZ001
LIMITS = QueryLimits(
    max_file_bytes=8 * 1024 * 1024, max_file_rows=50_000, max_file_columns=500, threads=1
)


@pytest.fixture
def connection() -> Iterator[DuckDBPyConnection]:
    with connect(LIMITS) as connection:
        yield connection


def types(connection: DuckDBPyConnection, content: bytes, kind: str = "csv") -> dict[str, str]:
    (table,) = Loader(connection, LIMITS).load(content, kind, ["t"])
    return {name: found for name, found, _ in table.columns}


def rows(connection: DuckDBPyConnection, table: str = "t") -> list[tuple[Any, ...]]:
    return connection.execute(f"SELECT * FROM {table}").fetchall()


def rejection(connection: DuckDBPyConnection, content: bytes, kind: str = "csv") -> str:
    with pytest.raises(FileRejected) as refused:
        Loader(connection, LIMITS).load(content, kind, ["t"])
    return str(refused.value)


def test_csv_has_exact_numbers_dates_and_blanks(connection: DuckDBPyConnection) -> None:
    found = types(connection, SALES)
    assert list(found) == ["region", "amount", "sold_on", "note"]
    assert list(found.values()) == ["VARCHAR", "DECIMAL(18,2)", "DATE", "VARCHAR"]
    assert rows(connection) == [
        ("North", Decimal("10.50"), date(2025, 1, 31), "first, of all"),
        ("South", Decimal("3.25"), date(2025, 2, 1), None),
        ("North", Decimal("1.00"), None, "x"),
    ]


@pytest.mark.parametrize(
    ("cells", "type_", "first"),
    [
        (["1", "-20", "+3"], "BIGINT", 1),
        (["007", "12"], "VARCHAR", "007"),
        (["9223372036854775808", "1"], "DECIMAL(19,0)", Decimal(9223372036854775808)),
        (["9" * 39, "1"], "DOUBLE", 1e39),
        (["1.5", "2"], "DECIMAL(18,1)", Decimal("1.5")),
        (["1.5e3", "2"], "DOUBLE", 1500.0),
        (["NaN", "1"], "VARCHAR", "NaN"),
        (["1,234.50", "12.00"], "DECIMAL(18,2)", Decimal("1234.50")),
        (["1.234,50", "12,00"], "DECIMAL(18,2)", Decimal("1234.50")),
        (["1,234", "2,345"], "VARCHAR", "1,234"),
        (["1,234", "12.5"], "DECIMAL(18,1)", Decimal("1234.0")),
        (["1.234", "12,5"], "DECIMAL(18,1)", Decimal("1234.0")),
        (["1,36,97,481.81", "12.00"], "DECIMAL(18,2)", Decimal("13697481.81")),
        (["1 234,50", "12,00"], "DECIMAL(18,2)", Decimal("1234.50")),
        (["1\u202f234\xa0€", "12 €"], "DECIMAL(18,0)", Decimal("1234")),
        (["1'234.50", "12"], "DECIMAL(18,2)", Decimal("1234.50")),
        (["$1,234.50", "($12.00)"], "DECIMAL(18,2)", Decimal("1234.50")),
        (["-7,00 €", "1.234,56 €"], "DECIMAL(18,2)", Decimal("-7.00")),
        (["7,00-", "12,50"], "DECIMAL(18,2)", Decimal("-7.00")),
        (["￥1,234.50", "￥20.00"], "DECIMAL(18,2)", Decimal("1234.50")),
        (["5.00 EUR", "6.00 USD"], "VARCHAR", "5.00 EUR"),
        (["12,5%", "7,5%"], "DECIMAL(18,3)", Decimal("0.125")),
        (["31/03/2026", "01/04/2026"], "DATE", date(2026, 3, 31)),
        (["03/31/2026", "04/01/2026"], "DATE", date(2026, 3, 31)),
        (["2026/3/31", "2026/04/01"], "DATE", date(2026, 3, 31)),
        (["2026年3月31日"], "DATE", date(2026, 3, 31)),
        (["31.03.26", "01.04.26"], "DATE", date(2026, 3, 31)),
        (["1.2.10", "2.10.12"], "VARCHAR", "1.2.10"),
        (["36:00:00", "2:00:00"], "BIGINT", 129600),
        (["14:30", "09:15"], "VARCHAR", "14:30"),
        (["2025-01-31T15:30:00+05:30", "2025-01-31T10:00:00Z"], "TIMESTAMP", _TEN),
        (["01234", "99999"], "VARCHAR", "01234"),
        (["2025-01-31", " 2025-02-01 "], "DATE", date(2025, 1, 31)),
        (["2025-02-30", "2025-02-01"], "VARCHAR", "2025-02-30"),
        (["31.01.2025", "1.2.2025"], "DATE", date(2025, 1, 31)),
        (["01/02/2025", "03/04/2025"], "VARCHAR", "01/02/2025"),
        (["2025-01-31 10:00", "2025-01-31T10:00:01.5"], "TIMESTAMP", _TEN),
        (["TRUE", "false"], "BOOLEAN", True),
        (["=1+1", "=cmd|' /C calc'!A0"], "VARCHAR", "=1+1"),
        (["", " "], "VARCHAR", None),
        (["1", "", "3"], "BIGINT", 1),
    ],
)
def test_type_of_a_column_is_that_of_all_its_cells(
    cells: list[str], type_: str, first: Any, connection: DuckDBPyConnection
) -> None:
    listed = "\n".join(f'"{cell}";x' for cell in cells)
    found = types(connection, f"value;other\n{listed}\n".encode())
    assert found["value"] == type_
    assert rows(connection)[0][0] == first


@pytest.mark.parametrize(
    ("encoding", "separator"),
    [("utf-8", ","), ("utf-8-sig", ";"), ("utf-16", "\t"), ("utf-32", "|"), ("cp1252", ";")],
)
def test_encoding_is_found(encoding: str, separator: str, connection: DuckDBPyConnection) -> None:
    text = f"Größe{separator}Name\n1{separator}Jürgen\n2{separator}José\n"
    assert list(types(connection, text.encode(encoding))) == ["grösse", "name"]
    assert rows(connection) == [(1, "Jürgen"), (2, "José")]


@pytest.mark.parametrize(
    ("text", "columns", "count"),
    [
        ("1,2\n3,4\n", ["column_1", "column_2"], 2),
        ("Region,2024,2025\nNorth,1,2\n", ["region", "n_2024", "n_2025"], 1),
        ("a,,a\n1,2,3\n", ["a", "column_2", "a_2"], 1),
        ("a,b\n1\n2,3\n", ["a", "b"], 2),
        ("a,b\n1,2,3\n", ["a", "b", "column_3"], 1),
        ("a,b\n" + "1,2\n" * 200 + "3,4,5\n", ["a", "b", "column_3"], 201),
        ("\n\r\na,b\r\n1,2\r\n", ["a", "b"], 1),
        ('a,b\n"x\ny",2\n', ["a", "b"], 1),
        ("name\nAsha\nRavi\n", ["name"], 2),
        ("a,b\n", ["a", "b"], 0),
    ],
)
def test_headings_and_uneven_rows(
    text: str, columns: list[str], count: int, connection: DuckDBPyConnection
) -> None:
    assert list(types(connection, text.encode())) == columns
    assert len(rows(connection)) == count


def test_visible_sheets_become_tables(connection: DuckDBPyConnection) -> None:
    content = workbook(
        {
            "Sales": [
                ["Region", "Net", "On", "Paid", "Code"],
                ["North", 10.5, _DAY, True, "007"],
                ["South", 3, _DAY, False, "12"],
                ["All", "=SUM(B2:B3)"],
            ],
            "Secret": [["a"], [1]],
            "Empty": [],
            "People": [["Name"], ["Asha"]],
        },
        hidden=["Secret"],
    )
    sales, people = Loader(connection, LIMITS).load(content, "workbook", ["one", "two"])
    assert (sales.sheet, sales.rows, people.sheet) == ("Sales", 3, "People")
    kinds = [kind for _, kind, _ in sales.columns]
    assert kinds == ["VARCHAR", "DECIMAL(18,1)", "DATE", "BOOLEAN", "VARCHAR"]
    first = ("North", Decimal("10.5"), date(2025, 1, 31), True, "007")
    assert rows(connection, "one")[0] == first
    # A formula is what was stored with it: nothing is worked out.
    assert rows(connection, "one")[2][1] == 0


def test_parquet_keeps_its_types(connection: DuckDBPyConnection, tmp_path: Path) -> None:
    select = """SELECT 1::BIGINT AS "Order", 1.50::DECIMAL(9, 2) AS amount,
        DATE '2025-01-31' AS day, [1, 2] AS list, {'a': 1} AS nested, 'x'::BLOB AS bytes,
        TIMESTAMP '2025-01-31 10:00' AS at"""
    found = types(connection, parquet(tmp_path, select), "parquet")
    assert found == {
        "order_": "BIGINT",
        "amount": "DECIMAL(9,2)",
        "day": "DATE",
        "list": "VARCHAR",
        "nested": "VARCHAR",
        "bytes": "VARCHAR",
        "at_": "TIMESTAMP",
    }
    assert rows(connection)[0][3:5] == ("[1, 2]", "{'a': 1}")


@pytest.mark.security
@pytest.mark.parametrize(
    ("content", "kind", "why"),
    [
        (b"", "csv", "empty"),
        (b"a,b\n1,\0\n", "csv", "not text"),
        (b"x" * (9 * 1024 * 1024), "csv", "larger than"),
        (b"a,b\n1," + b"x" * (2 * 1024 * 1024) + b"\n", "csv", "longer than"),
        (b'a,b\n1,"' + b"x,\n" * 500_000, "csv", "in row 2 a quote does not end"),
        (b'a,b\n1,2\n3,"x"y\n', "csv", "in row 3 a quote"),
        (",".join("a" * 501).encode(), "csv", "501 columns"),
        (b"a\n" + b"1\n" * 50_001, "csv", "more than 50000 rows"),
        (b"PAR1" + b"x" * 100 + b"PAR1", "parquet", "damaged"),
        (b"\xd0\xcf\x11\xe0" + b"\0" * 600, "workbook", "no workbook"),
        (lambda: bomb(300), "workbook", "unpacks"),
        (workbook({"a": [["x"] * 501]}), "workbook", "501 columns"),
        (workbook({"a": []}), "workbook", "none of its visible sheets"),
        (
            workbook({"a": [["a"]], "b": [["b"]]}).replace(b"sheet1", b"sheetX"),
            "workbook",
            "damaged",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "content",  # workbooks hold the time
)
def test_what_is_no_table_is_refused_with_the_reason(
    content: bytes | Callable[[], bytes], kind: str, why: str, connection: DuckDBPyConnection
) -> None:
    made = content if isinstance(content, bytes) else content()
    said = rejection(connection, made, kind)
    assert why in said
    assert "/" not in said


@pytest.mark.security
@pytest.mark.process
async def test_sheet_that_spans_the_whole_grid_ends_its_process_alone() -> None:
    stream = io.BytesIO()
    with xlsxwriter.Workbook(stream) as book:
        sheet = book.add_worksheet("wide")
        sheet.write(0, 0, "a")
        sheet.write(1_048_575, 16_383, 1)
    engine = QueryEngine(LIMITS, at_once=1)
    wide, sales = table_file("wide.xlsx", stream.getvalue()), table_file("sales.csv", SALES)
    tables, rejected = await engine.tables([wide, sales])
    assert [table.name for table in tables] == ["sales"]
    assert rejected == {"wide.xlsx": "it takes more time or memory than it may"}


async def test_files_that_are_no_tables_do_not_hide_the_others() -> None:
    engine = QueryEngine(LIMITS, at_once=2)
    files = [
        table_file("sales.csv", SALES),
        table_file("broken.parquet", b"x"),
        table_file("picture.png", b"x"),
    ]
    tables, rejected = await engine.tables(files)
    assert [(table.name, table.file, table.rows) for table in tables] == [("sales", "sales.csv", 3)]
    assert [column.title for column in tables[0].columns] == ["Region", "Amount", "Sold on", "Note"]
    assert list(rejected) == ["broken.parquet"]


@pytest.mark.security
async def test_files_beyond_the_limits_are_not_read() -> None:
    read: list[str] = []
    files = [table_file(f"{name}.csv", b"a,b\n1,2\n", read) for name in "cab"]
    files.append(table_file("a large one.csv", b"a,b\n" * 20, read))
    engine = QueryEngine(replace(LIMITS, max_files=3, max_file_bytes=50), at_once=1)
    tables, rejected = await engine.tables(files)
    assert [table.name for table in tables] == ["a", "b"]
    assert rejected == {
        "a large one.csv": "it is larger than 50 bytes",
        "c.csv": "only 3 files become tables",
    }
    assert read == ["a.csv"]  # the others have the same content
