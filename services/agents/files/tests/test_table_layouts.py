"""Tables as people lay them out: sums by group are those that a person would make."""

import io
import zipfile
from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pytest
import xlsxwriter
from duckdb import DuckDBPyConnection

from bos_files.queries.limits import QueryLimits
from bos_files.queries.loading import Loader
from bos_files.queries.rejections import FileRejected
from bos_files.queries.worker import connect

LIMITS = QueryLimits(threads=1)
ODS = "urn:oasis:names:tc:opendocument:xmlns"


@pytest.fixture
def connection() -> Iterator[DuckDBPyConnection]:
    with connect(LIMITS) as connection:
        yield connection


def loaded(
    connection: DuckDBPyConnection, content: bytes, kind: str = "workbook"
) -> tuple[list[str], list[tuple[Any, ...]], str]:
    """Names of the columns, rows, and notes as one text."""
    connection.execute("DROP TABLE IF EXISTS t")
    (table,) = Loader(connection, LIMITS).load(content, kind, ["t"])
    names = [name for name, *_ in table.columns]
    return names, connection.execute("SELECT * FROM t").fetchall(), " ".join(table.notes)


TEXTS = [
    ("sep=;\r\na;b\r\n1;2\r\n", ["a", "b"], [(1, 2)], ""),
    ('"sep=|"\na|b\n1|2\n', ["a", "b"], [(1, 2)], ""),
    (
        "Report created 2026-03-31\nCompany: Acme\n\nregion,amount\nNorth,10\nSouth,20\n",
        ["region", "amount"],
        [("North", 10), ("South", 20)],
        "2 rows above are no part of the table: Report created 2026-03-31; Company: Acme",
    ),
    ("売上表;\n都市;数量\n東京;5\n", ["都市", "数量"], [("東京", 5)], "売上表"),
    ("1,,\n2,3,4\n5,6,7\n", ["column_1", "column_2", "column_3"], None, ""),
    ("a,b,c\n1,2\n7,8,9\n", ["a", "b", "c"], [(1, 2, None), (7, 8, 9)], "1 row has fewer cells"),
    ("a,b\n,\n1,2\n", ["a", "b"], [(1, 2)], ""),
    (
        "region,amount\nN,10\nS,20\nTotal,30\n",
        ["region", "amount"],
        [("N", 10), ("S", 20)],
        "'Total'",
    ),
    ("город;сумма\nА;1,5\nБ;2\nИтого:;3,5\n", ["город", "сумма"], None, "'Итого'"),
    (
        "地区,金额\n北京,5\n上海,6\n合计,11\n",
        ["地区", "金额"],
        [("北京", 5), ("上海", 6)],
        "'合计'",
    ),
    # Averages are no sums.
    ("r,price,n\nN,10,2\nS,20,3\nTotal,15,5\n", None, [("N", 10, 2), ("S", 20, 3)], "'Total'"),
    ("r,n\nN,2\nS,3\nTotal,5\nMean,2\n", None, [("N", 2), ("S", 3), ("Mean", 2)], "before the l"),
    ("r,n\nN,2\nS,3\nTotal,5\nGrand total,5\n", None, [("N", 2), ("S", 3)], "'Grand total'"),
    ("r,n\nTotal,5\nN,6\n", None, [("Total", 5), ("N", 6)], ""),
    ("r,n\nN,0\nTotal,0\n", None, [("N", 0)], "'Total'"),
    ("r,n,m\nN,0,1\nS,0,1\nTotal,0,7\n", ["r", "n", "m"], None, "may hold totals"),
    ("region,amount\nN,10\nTotal,30\n", None, [("N", 10), ("Total", 30)], "may hold totals"),
    ("r,word\nN,x\nTotal,y\n", ["r", "word"], [("N", "x"), ("Total", "y")], ""),
    # The heading of an index is blank.
    (",city\nalice,Paris\nbob,Rome\n", ["column_1", "city"], None, ""),
    ("Cities,\nname,city\nalice,Rome\nbob,Oslo\n", ["name", "city"], None, "Cities"),
    ("at,score\n03:25,30:28\n75:30,1:2\n", None, [("03:25", "30:28"), ("75:30", "1:2")], "a score"),
    ("at,t\n09:30,1:30:00\n17:00,30:00:00\n", None, [("09:30", 5400), ("17:00", 108000)], "t: d"),
    ("d\n01.02.26\n", ["d"], [(date(2026, 2, 1),)], "d: dates with years of two digits"),
    ("d\n1.2.2026\n", ["d"], [(date(2026, 2, 1),)], ""),
    ("p\n555 123 456\n", ["p"], [("555 123 456",)], "p: digits with blanks"),
    ("p;q\n555 123;1\n5,5;2\n", None, [(555123, 1), (Decimal("5.5"), 2)], ""),
    ("p\n555 123 €\n", ["p"], [(555123,)], "amounts in €"),
    ("p\n555\u00a0123\n", ["p"], [(555123,)], ""),
    ("n\n(1)\n(2)\n", ["n"], [("(1)",), ("(2)",)], "n: (1) and 1- may be"),
    ("n\n12-\n", ["n"], [("12-",)], "n: (1) and 1- may be"),
    ("n,m,o\n(1),(1.5),1-\n2,(2.5),3\n", ["n", "m", "o"], None, ""),
    ("n\n(1)\n2-\n3\n", ["n"], [(-1,), (-2,), (3,)], ""),
    ("n\n(1.5)\n", ["n"], [(Decimal("-1.5"),)], ""),
    ("price\n1,5\n2,25\n", ["price"], [(Decimal("1.5"),), (Decimal("2.25"),)], ""),
    ("a,b\n1,5\n2,25\n", ["a", "b"], [(1, 5), (2, 25)], ""),
    ("Город;Число\nКазань;6\n", ["город", "число"], [("Казань", 6)], "windows-1251"),
    ("a;b\n1;1.234\n2;2.345\n", ["a", "b"], None, "may separate thousands"),
    ("a;b;c\n1;1.234;0,5\n", ["a", "b", "c"], [(1, Decimal("1234"), Decimal("0.5"))], ""),
    ("day;paid\n1;5 €\n2;7 €\n", ["day", "paid"], [(1, 5), (2, 7)], "paid: amounts in €."),
    ("d\n01/02/2025\n", ["d"], [("01/02/2025",)], "day first or month first; kept as text"),
    (",".join(f"c{n}" for n in range(400)) + "\n" + ",".join("1" * 400) + "\n", None, None, ""),
]


def test_text_tables_are_read_as_they_are_laid_out(connection: DuckDBPyConnection) -> None:
    wrong = []
    for text, names, rows, note in TEXTS:
        encoding = "cp1251" if "1251" in note else "utf-8"
        found = loaded(connection, text.encode(encoding), "csv")
        right = (names is None or found[0] == names) and (rows is None or found[1] == rows)
        if not right or note not in found[2] or bool(note) != bool(found[2]):
            wrong.append((text[:40], found))
    assert wrong == []


def merged_workbook(first: str, second: str, total: str) -> bytes:
    stream = io.BytesIO()
    with xlsxwriter.Workbook(stream) as book:
        sheet = book.add_worksheet("Data")
        sheet.write_row(0, 0, ["Region", "Quarter", "Revenue", "Plan"])
        sheet.merge_range(1, 0, 2, 0, first)
        sheet.merge_range(3, 0, 4, 0, second)
        sheet.merge_range(1, 3, 2, 3, 500)
        for at, (quarter, revenue) in enumerate(
            (("Q1", 100), ("Q2", 120), ("Q1", 80), ("Q2", 90)), 1
        ):
            sheet.write(at, 1, quarter)
            sheet.write(at, 2, revenue)
        sheet.write(5, 0, total)
        sheet.write(5, 2, 390)
    return stream.getvalue()


@pytest.mark.parametrize("words", [("North", "South", "Total"), ("北", "南", "总计")])
def test_merged_cells_are_filled_so_that_sums_by_group_are_right(
    words: tuple[str, str, str], connection: DuckDBPyConnection
) -> None:
    _, _, notes = loaded(connection, merged_workbook(*words))
    sums = connection.execute(
        "SELECT region, sum(revenue), sum(plan) FROM t GROUP BY 1 ORDER BY 2 DESC"
    ).fetchall()
    assert sums == [(words[0], 220, 500), (words[1], 170, None)]
    assert "1 number is in cells merged over several rows" in notes
    assert f"{words[2]!r}, holds the totals" in notes


def test_two_rows_of_headings_below_a_title_become_one(connection: DuckDBPyConnection) -> None:
    stream = io.BytesIO()
    with xlsxwriter.Workbook(stream) as book:
        sheet = book.add_worksheet("Data")
        sheet.merge_range(0, 0, 0, 4, "Sales report")
        sheet.merge_range(1, 1, 1, 2, "2025")
        sheet.merge_range(1, 3, 1, 4, "2026")
        sheet.write_row(2, 0, ["Region", "Plan", "Actual", "Plan", "Actual"])
        sheet.write_row(3, 0, ["North", 1, 2, 3, 4])
    names, rows, notes = loaded(connection, stream.getvalue())
    assert names == ["region", "n_2025_plan", "n_2025_actual", "n_2026_plan", "n_2026_actual"]
    assert rows == [("North", 1, 2, 3, 4)]
    assert "Sales report" in notes


MERGED: list[tuple[list[list[Any]], list[tuple[int, ...]], list[str] | None, list[Any], str]] = [
    # Rows, merged ranges, and the names, rows and notes of the table.
    (
        [["Name", "Address", ""], ["Al", "Main St", "Paris"], ["Bo", "High St", "Rome"]],
        [(0, 1, 0, 2)],
        ["name", "address", "column_3"],
        [("Al", "Main St", "Paris"), ("Bo", "High St", "Rome")],
        "",
    ),
    (
        [["Region", "Address", ""], ["", "street", "city"], ["North", "Main St", "Paris"]],
        [(0, 0, 1, 0), (0, 1, 0, 2)],
        ["region", "address_street", "address_city"],
        [("North", "Main St", "Paris")],
        "",
    ),
    (
        [["Year", "Quarter", "n"], [2000, "Q1", 1], ["", "Q2", 2]],
        [(1, 0, 2, 0)],
        ["year", "quarter", "n"],
        [(2000, "Q1", 1), (2000, "Q2", 2)],
        "1 year is",
    ),
    (
        [["Budget", "Quarter"], [2000, "Q1"], ["", "Q2"], [500, "Q3"]],
        [(1, 0, 2, 0)],
        None,
        [(2000, "Q1"), (None, "Q2"), (500, "Q3")],
        "1 number is",
    ),
    (
        [["Start", "Quarter"], [2000, "Q1"], ["", "Q2"], [2001, "Q3"]],
        [(1, 0, 2, 0)],
        None,
        [(2000, "Q1"), (2000, "Q2"), (2001, "Q3")],
        "1 year is",
    ),
    (
        [
            ["Cost", "Time", "Zip", "n"],
            ["€1,500.00", timedelta(hours=30), "01", 1],
            ["", "", "", 2],
        ],
        [(1, 0, 2, 0), (1, 1, 2, 1), (1, 2, 2, 2)],
        None,
        [(1500, 108000, "01", 1), (None, None, "01", 2)],
        "2 numbers are",
    ),
]


def test_merged_cells_are_headings_years_or_amounts(connection: DuckDBPyConnection) -> None:
    wrong = []
    for cells, ranges, names, rows, note in MERGED:
        stream = io.BytesIO()
        with xlsxwriter.Workbook(stream) as book:
            sheet = book.add_worksheet("Data")
            hours = book.add_format({"num_format": "[h]:mm:ss"})
            for area in ranges:
                sheet.merge_range(*area, "")
            for at, row in enumerate(cells):
                for place, cell in enumerate(row):
                    if cell:
                        sheet.write(at, place, cell, hours if isinstance(cell, timedelta) else None)
        found = loaded(connection, stream.getvalue())
        right = (names is None or found[0] == names) and found[1] == rows
        if not right or note not in found[2] or bool(note) != bool(found[2]):
            wrong.append((cells[0], found))
    assert wrong == []


def test_numbers_of_workbooks_are_those_that_are_shown(connection: DuckDBPyConnection) -> None:
    stream = io.BytesIO()
    with xlsxwriter.Workbook(stream) as book:
        sheet = book.add_worksheet("Data")
        sheet.write_row(0, 0, ["zip", "dur", "calc"])
        sheet.write(1, 0, 1234, book.add_format({"num_format": "00000"}))
        sheet.write(1, 1, 1.5, book.add_format({"num_format": "[h]:mm"}))
        sheet.write_formula(1, 2, "=1+1", None, "")
        sheet.write(2, 0, 99999)
    names, rows, notes = loaded(connection, stream.getvalue())
    assert (names, rows) == (
        ["zip", "dur", "calc"],
        [("01234", 129600, None), ("99999", None, None)],
    )
    assert "dur: durations, in seconds" in notes
    assert "1 formula has no stored value" in notes


def ods(rows: str) -> bytes:
    stream = io.BytesIO()
    declared = " ".join(f'xmlns:{name}="{ODS}:{name}:1.0"' for name in ("office", "table", "text"))
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        archive.writestr(
            "META-INF/manifest.xml",
            f'<m:manifest xmlns:m="{ODS}:manifest:1.0"/>',
        )
        archive.writestr(
            "content.xml",
            f"<office:document-content {declared}><office:body><office:spreadsheet>"
            f'<table:table table:name="Data">{rows}</table:table>'
            "</office:spreadsheet></office:body></office:document-content>",
        )
    return stream.getvalue()


def test_cells_merged_in_open_document_are_filled(connection: DuckDBPyConnection) -> None:
    def text(value: str, more: str = "") -> str:
        cell = f'<table:table-cell office:value-type="string"{more}><text:p>{value}</text:p>'
        return f"{cell}</table:table-cell>"

    def number(value: int) -> str:
        return (
            f'<table:table-cell office:value-type="float" office:value="{value}"><text:p>{value}'
            "</text:p></table:table-cell>"
        )

    spanned = ' table:number-rows-spanned="2"'
    lines = [
        text("Region") + text("Revenue"),
        text("Норд", spanned) + number(100),
        "<table:covered-table-cell/>" + number(120),
    ]
    content = ods("".join(f"<table:table-row>{line}</table:table-row>" for line in lines))
    assert loaded(connection, content)[1] == [("Норд", 100), ("Норд", 120)]


@pytest.mark.security
@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"<html><table><tr><td>1</td></tr></table></html>", "a web page named as a workbook"),
        (ods("").replace(b"mimetype", b"mimetypf"), "none of its visible sheets|damaged"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "damaged, or protected"),
    ],
)
def test_what_is_no_workbook_is_refused(
    content: bytes, why: str, connection: DuckDBPyConnection
) -> None:
    with pytest.raises(FileRejected, match=why):
        Loader(connection, LIMITS).load(content, "workbook", ["t"])
