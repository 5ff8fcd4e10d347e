"""Names of tables and columns: safe, and the same for any caller and in any order."""

import pytest

from bos_files.queries.names import column_names, table_names
from bos_sqlguard import Guard, GuardPolicy

HOSTILE = (
    "salaries; DROP TABLE x.csv", 'a"b.csv', "../../etc/passwd.csv", "select.csv", "2025.csv",
    "---.csv", "duckdb_settings.csv", "sqlite_master.csv", "read_csv('x').csv", "a\u202eb.csv",
    "x" * 300, "売上.csv", "a\nb.csv", "current_user.csv",
)  # fmt: skip


def test_name_of_a_table_comes_from_its_file_and_sheet() -> None:
    names = table_names([("Sales 2025.csv", [""]), ("Plan.xlsx", ["Q1", "Q 2"]), ("b.xlsx", ["x"])])
    assert names == {
        ("Sales 2025.csv", 0): "sales_2025",
        ("Plan.xlsx", 0): "plan_q1",
        ("Plan.xlsx", 1): "plan_q_2",
        ("b.xlsx", 0): "b",
    }


def test_names_do_not_depend_on_the_order_of_files() -> None:
    files = [("sales.csv", [""]), ("sales.xlsx", ["x"]), ("Sales!.csv", [""])]
    assert table_names(files) == table_names(files[::-1])
    assert sorted(table_names(files).values()) == ["sales", "sales_2", "sales_3"]


@pytest.mark.security
@pytest.mark.parametrize("file", HOSTILE)
def test_names_of_tables_need_no_quotes_in_queries(file: str) -> None:
    (name,) = table_names([(file, [""])]).values()
    (column,) = column_names([file])
    verdict = Guard(GuardPolicy("duckdb", frozenset({name}))).check(
        f"SELECT t.{column}, {column} AS x FROM {name} AS t GROUP BY {column}"
    )
    assert verdict.is_safe, verdict.violations
    assert verdict.used_tables == (name,)


@pytest.mark.security
def test_no_two_columns_have_one_name() -> None:
    names = column_names(["A", "a ", "a_2", "a", "", "column_5", "x" * 300, "x" * 300])
    assert len(set(names)) == len(names)
    assert names[:4] == ["a", "a_2", "a_2_2", "a_3"]
    assert max(map(len, names)) < 64
