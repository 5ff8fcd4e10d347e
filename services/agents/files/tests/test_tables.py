"""CSV and XLSX: exact values, no formulas."""

import csv
import io
import re
import zipfile
from datetime import date
from decimal import Decimal
from xml.etree import ElementTree as ET

import pytest

from bos_errors import InvalidArgument
from bos_files.tables import csv_content, table_of, xlsx_content

FORMULAS = ["+1", "-cmd|' /C calc'!A0", "@SUM(A1)", "\r=1", "＝1"]
_MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"


def cells(content: bytes) -> dict[str, tuple[str, str]]:
    """Type and value of each cell of the first sheet, by its place."""
    with zipfile.ZipFile(io.BytesIO(content)) as book:
        texts = [
            "".join(part.text or "" for part in each.iter(f"{_MAIN}t"))
            for each in ET.fromstring(book.read("xl/sharedStrings.xml"))
        ]
        sheet = ET.fromstring(book.read("xl/worksheets/sheet1.xml"))
    found = {}
    for cell in sheet.iter(f"{_MAIN}c"):
        kind, value = cell.get("t", "n"), cell.findtext(f"{_MAIN}v", "")
        assert cell.find(f"{_MAIN}f") is None
        found[str(cell.get("r"))] = (kind, texts[int(value)] if kind == "s" else value)
    return found


@pytest.mark.security
@pytest.mark.parametrize("text", FORMULAS, ids=ascii)
def test_cells_that_begin_like_formulas_are_texts(text: str) -> None:
    (_, row) = csv.reader(io.StringIO(csv_content(["a"], [[text]]).decode("utf-8-sig")))
    assert row == [f"'{text}"]
    kind, value = cells(xlsx_content([text], [[text]]))["A2"]
    # Excel reads a carriage return as _x000D_.
    assert (kind, value.replace("_x000D_", "\r")) == ("s", text)


@pytest.mark.parametrize("text", ["a=1", "plain"])
def test_other_texts_stay_as_they_are(text: str) -> None:
    (_, row) = csv.reader(io.StringIO(csv_content(["a"], [[text]]).decode("utf-8-sig")))
    assert row == [text]


def test_numbers_are_exact() -> None:
    values = [2**63 - 1, -(2**63), Decimal("12345678901234567890.123456789"), Decimal("-0.10"), 7]
    (_, row) = csv.reader(io.StringIO(csv_content("abcde", [values]).decode("utf-8-sig")))
    assert row == [str(value) for value in values]
    found = cells(xlsx_content(list("abcde"), [values]))
    assert found["A2"] == ("s", "9223372036854775807")
    assert found["B2"] == ("s", "-9223372036854775808")
    assert found["C2"] == ("s", "12345678901234567890.123456789")
    assert found["D2"][0] == "n"
    assert Decimal(found["D2"][1]) == Decimal("-0.1")
    assert found["E2"] == ("n", "7")


def test_dates_truths_gaps_and_floats_keep_their_kind() -> None:
    found = cells(xlsx_content(list("abcd"), [[date(2026, 6, 15), True, None, 0.1 + 0.2]]))
    assert found["A2"] == ("n", "46188")
    assert found["B2"] == ("b", "1")
    assert "C2" not in found
    assert float(found["D2"][1]) == pytest.approx(0.1 + 0.2, rel=1e-15)
    (_, row) = csv.reader(
        io.StringIO(csv_content("abc", [[date(2026, 6, 15), True, None]]).decode("utf-8-sig"))
    )
    assert row == ["2026-06-15", "true", ""]


def test_hostile_texts_make_a_valid_workbook() -> None:
    rows = [["\x00\x0b\ufffe\ud800"], ["a" * 40_000], ["<a&b>\"']]>"], ["https://x.example"]]
    found = cells(xlsx_content(["[x]:*?/\\"], rows, "[History]:*?/\\" * 5))
    assert len(found["A3"][1]) == 32_767
    assert found["A4"][1] == "<a&b>\"']]>"
    assert found["A5"] == ("s", "https://x.example")


def test_same_table_makes_the_same_bytes() -> None:
    table = (["a"], [[1], ["x"]])
    assert xlsx_content(*table) == xlsx_content(*table)


def test_tables_are_maps_lists_or_values() -> None:
    assert table_of([{"a": 1}, {"b": 2}]) == (["a", "b"], [[1, None], [None, 2]])
    assert table_of([{"a": 1, "b": 2}], ["b"]) == (["b"], [[2]])
    assert table_of([[1, 2], [3]]) == (["column 1", "column 2"], [[1, 2], [3, None]])
    assert table_of([1, 2]) == (["value"], [[1], [2]])
    assert table_of({"rows": [{"a": 1}]}) == (["a"], [[1]])
    for none in ([], "text", 5, None):
        with pytest.raises(InvalidArgument):
            table_of(none)
    with pytest.raises(InvalidArgument, match=re.compile("columns")):
        table_of([{f"c{n}": 1 for n in range(300)}])
