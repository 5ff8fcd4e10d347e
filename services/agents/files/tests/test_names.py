"""Names that a file may have, and those that it may not."""

import unicodedata

import pytest

from bos_errors import InvalidArgument
from bos_files.card import files_card
from bos_files.queries.names import column_names, table_names
from bos_files.workspaces.names import MAX_BYTES, checked_name, name_of_url
from bos_plans.names import canonical_name
from bos_sqlguard import Guard, GuardPolicy


@pytest.mark.requirement("R-07", "J-01")
@pytest.mark.parametrize(
    "name",
    [
        "",
        "..",
        "../a.txt",
        "C:\\a.txt",
        "a\nb.txt",
        "invoice\u202efdp.exe",
        "a\u200bb.txt",
        ".bashrc",
        "a.txt.",
        " a.txt",
        "a  b.txt",
        "nul.txt",
        "what?.txt",
        "अ" * 86,
        "a\ud800.txt",
    ],
    ids=ascii,
)
def test_names_that_leave_the_workspace_or_deceive_are_refused(name: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        checked_name(name)
    assert refused.value.violations[0].field == "name"


@pytest.mark.parametrize(
    "name",
    ["Q2 report (final).xlsx", "क\u094d\u200dष.txt", "报告.pdf", "a" * MAX_BYTES],
)
def test_ordinary_names_of_any_language_are_kept(name: str) -> None:
    assert checked_name(name) == name


def test_names_are_composed() -> None:
    assert checked_name(unicodedata.normalize("NFD", "Übersicht.txt")) == "Übersicht.txt"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/a/report.pdf", "report.pdf"),
        ("/", "download"),
        ("/x/..\\..\\evil.exe", ".. evil.exe".strip(". ")),
        ("/a\u202eb.txt", "a b.txt"),
        ("/" + "é" * 400, "é" * 127),
    ],
)
def test_names_of_downloads_come_from_the_last_part_of_the_path(path: str, name: str) -> None:
    assert checked_name(name_of_url(path)) == name


@pytest.mark.requirement("C-19", "J-01", "J-04")
@pytest.mark.parametrize(
    ("name", "agent"),
    [
        ("FileDownloaderTool", "files"),
        ("ExploreSearchResults", None),
    ],
)
def test_actions_of_an_orchestrator_are_found_by_alias(name: str, agent: str | None) -> None:
    assert canonical_name(name, {"files": files_card([])}) == agent


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
