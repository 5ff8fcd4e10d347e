"""Which tasks are about uploaded files, and what is then read."""

from collections.abc import Mapping
from typing import Any

import pytest

from bos.agent.v1 import AgentInput, TaskMetadata
from bos_agentkit import AgentFailure
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import from_value_map
from bos_llm import Models
from bos_sql.agent import SqlAgent
from bos_sql.database.file_words import sounds_like_files
from bos_sql.database.metadata import database_sources
from bos_sql.database.uploaded_files import files_overview
from bos_sql.grounding.cache import MetadataIndexes
from bos_sql.settings import SqlSettings
from bos_testkit.agents import agent_server, call_agent
from bos_testkit.scripted_model.pytest_fixtures import model_settings
from bos_testkit.scripted_model.replies import fixture
from bos_testkit.scripted_model.server import ScriptedModel

from .conftest import FAILED, SUCCEEDED, fixtures

FILES = {
    "sales": "sales.csv",
    "sales_2": "Sales.xlsx",
    "plan_2025_targets": "Plan 2025.xlsx / Targets",
    "plan_2025_old": "Plan 2025.xlsx / Old",
    "customers": "customers.parquet",
}
SETTINGS = SqlSettings.load(mcp_url="http://127.0.0.1:1/mcp")


def listed(tables: Mapping[str, str], **more: Any) -> dict[str, Any]:
    """mcp_db's overview of these files."""
    return {
        "success": True,
        "database": "files",
        "description": "Files that the user uploaded.",
        "dialect": "duckdb",
        "default_schema": "main",
        "fingerprint": "f",
        "limits": {"max_rows": 100, "max_columns": 20},
        "tables": [
            {
                "name": name,
                "kind": "table",
                "comment": f"The uploaded file {title}",
                "row_estimate": 3,
                "title": title,
            }
            for name, title in tables.items()
        ],
        "rejected": [{"file": "broken.csv", "reason": "it has no rows"}],
        **more,
    }


async def found(task: str, envelope: dict[str, Any] | None = None) -> list[str] | None:
    """Tables that are read for a task; None if no uploaded file is."""

    async def read(arguments: dict[str, Any]) -> dict[str, Any]:
        assert arguments == {"database": "files"}
        return listed(FILES) if envelope is None else envelope

    overview = await files_overview(read, SETTINGS, task)
    return None if overview is None else [table.name for table in overview.tables]


@pytest.mark.parametrize(
    ("task", "tables"),
    [
        ("Total amount by region in sales.csv", ["sales"]),
        ("What is the highest goal in 'Plan 2025.xlsx'?", ["plan_2025_targets", "plan_2025_old"]),
        ("Compare SALES.CSV with the customers workbook", ["sales", "customers"]),
        ("Sum of the sales spreadsheet", ["sales", "sales_2"]),
        ("Rows of plan_2025_old in my files", ["plan_2025_old"]),
        ("How many rows do the files that I uploaded have?", list(FILES)),
        ("Average price in the file", list(FILES)),
        ("Summe der Beträge in der hochgeladenen Datei sales.csv", ["sales"]),
        ("Wie viele Zeilen haben meine Dateien?", list(FILES)),
        ("Combien de lignes dans le fichier sales.csv ?", ["sales"]),
        ("Suma de importes del archivo customers.parquet", ["customers"]),
        ("Сколько строк в файле sales.csv?", ["sales"]),
        ("我上传的文件里有多少行？", list(FILES)),
        ("sales.csv的总金额是多少？", ["sales"]),
        ("アップロードしたファイルの合計は？", list(FILES)),
        ("업로드한 파일의 합계는?", list(FILES)),
        ("Durchschnittspreis in der Datei", list(FILES)),
        ("Cuántas filas tienen los archivos que he subido", list(FILES)),
        ("Quante righe hanno i file caricati?", list(FILES)),
        ("Hoeveel regels heeft mijn bestand?", list(FILES)),
        ("这个表格有多少行？", list(FILES)),
        ("Somme du fichier customers", ["customers"]),
        ("From sales.csv, how many orders were created in May?", ["sales"]),
        ("Most creative or salvage items exported, in sales.csv", ["sales"]),
        ("Wie viele Zeilen von sales.csv wurden im Mai erstellt?", ["sales"]),
        ("sales.csv里五月生成了多少订单？", ["sales"]),
        ("Erstelle eine Übersicht der Beträge aus sales.csv", ["sales"]),
    ],
)
async def test_task_about_files_reads_those_that_it_names(task: str, tables: list[str]) -> None:
    assert sounds_like_files(task)
    assert await found(task) == tables


@pytest.mark.parametrize(
    "task",
    [
        "Write the top customers to customers.parquet",
        "List the customers for an Excel export",
        "Customers as a CSV file",
        "Save it as 'sales.csv'",
        "How many customers have a data sheet?",
        "Is there an invoice in contract.pdf?",
        "Speichere die Kunden als Datei sales.csv",
        "把客户导出到文件 sales.csv",
        "Save the top customers in sales.csv",
        "Create sales.csv with the top customers",
        "Export all: save them as broken.csv",
        "Guarda los clientes en el archivo sales.csv",
        "Сохраните клиентов в файл sales.csv",
        "Wie hoch ist der Bestand an Pumpen pro Lager?",
        "¿Cuánto han subido los precios este año?",
        "以表格形式列出每月销售额",
        "表格显示每月销售额",
        "Valore della merce caricata per mese",
        "Pedidos del archivo histórico por año",
        "Distinct values in customers.zip",
        "Average of orders.numbers",
        "Sum of amounts in payload.json",
        "x " + ".csv" * 3000 + "é!",
        "." * 12000,
    ],
)
async def test_task_of_no_file_that_is_there_reads_the_database(task: str) -> None:
    assert await found(task) is None


@pytest.mark.parametrize(
    "task",
    [
        "Which five customers brought the most revenue last quarter?",
        "Total order amount per city, largest first",
        "List all tables in the database",
        "Profile of our customers",
    ],
)
def test_other_tasks_do_not_even_look_at_files(task: str) -> None:
    assert not sounds_like_files(task)


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("Sum of the amounts in sales_2030.csv", "'sales_2030.csv'. Uploaded and readable"),
        (
            "Rows of the file legacy.json",
            "'legacy.json' cannot be read as a table. Save it as CSV or XLSX",
        ),
        ("Wie viele Zeilen hat die Datei in alt.mdb?", "'alt.mdb' cannot be read as a table"),
        ("Rows of 'legacy.json'", "'legacy.json' cannot be read as a table"),
        ("Lignes du fichier vieux.xml", "'vieux.xml' cannot be read as a table"),
        ("文件 统计数据.json里有多少行？", "json' cannot be read as a table"),
        ("Summe aus umsatz.xls", "There is no uploaded file 'umsatz.xls'"),
        ("Rows of broken.csv", "'broken.csv' cannot be read as a table: it has no rows"),
    ],
)
async def test_file_that_is_not_there_or_no_table_is_named(task: str, said: str) -> None:
    with pytest.raises(AgentFailure, match=said) as failure:
        await found(task)
    assert failure.value.type == "InvalidArgument"


@pytest.mark.parametrize("reason", ["UNKNOWN_DATABASE", "FILES_NOT_OPEN"])
async def test_deployment_without_files_has_none(reason: str) -> None:
    envelope = {"success": False, "tables": [], "error": {"reason": reason, "message": "no"}}
    assert await found("Total amount in sales.csv", envelope) is None


async def test_unreachable_files_fail_only_a_task_about_them() -> None:
    error = {"type": "QueryError", "reason": "DATABASE_UNAVAILABLE", "message": "away"}
    envelope = {"success": False, "tables": [], "error": error}
    with pytest.raises(AgentFailure, match="away"):
        await found("Total amount in sales.csv", envelope)
    assert await found("Hours by employee on time sheets", envelope) is None


async def test_narrowed_overview_has_its_own_fingerprint_and_sources() -> None:
    async def read(_: dict[str, Any]) -> dict[str, Any]:
        return listed(FILES)

    one = await files_overview(read, SETTINGS, "Rows of sales.csv")
    other = await files_overview(read, SETTINGS, "Rows of Sales.xlsx")
    every = await files_overview(read, SETTINGS, "Rows of all uploads")
    assert one is not None
    assert other is not None
    assert every is not None
    assert len({one.fingerprint, other.fingerprint, every.fingerprint}) == 3
    (source,) = database_sources(one, ["sales"])
    assert (source.title, source.reference) == ("sales.csv", "files.sales")


class Database:
    """mcp_db with a database of its own and one uploaded file; keeps what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    async def call(self, tool: str, arguments: dict[str, Any], *, timeout_s: float) -> Any:
        name = arguments["database"] or "main"
        self.asked.append((tool.removeprefix("mcp_db_"), name))
        if tool == "mcp_db_query":
            return {
                "success": True,
                "columns": ["total"],
                "column_types": ["decimal"],
                "data": [[{"$decimal": "14.75"}]],
                "row_count": 1,
                "truncated": False,
                "elapsed_ms": 1.0,
                "error": None,
                "violations": [],
            }
        envelope = listed({"sales": "sales.csv"}) if name == "files" else listed({"orders": ""})
        envelope |= {"database": name}
        if "tables" in arguments:
            column = {"name": "amount", "type": "decimal(18,2)", "nullable": True, "comment": ""}
            for table in envelope["tables"]:
                table |= {
                    "columns": [{**column, "sample_values": []}],
                    "primary_key": [],
                    "unique_keys": [],
                    "foreign_keys": [],
                }
        return envelope


async def test_step_about_a_file_queries_it_is_tainted_and_cites_it() -> None:
    database, telemetry = Database(), Telemetry.for_tests("sql")
    drafted = {"is_clear": True, "sql": "SELECT SUM(amount) AS total FROM sales"}
    replies = fixtures(
        fixture("file", ["sales.csv"], schema="QueryDraft", json=drafted), drafted=drafted
    )
    async with (
        ScriptedModel(replies) as model,
        Models(model_settings(model), telemetry) as models,
    ):
        agent = SqlAgent(
            SETTINGS,
            database,  # type: ignore[arg-type]
            models.for_agent("sql"),
            telemetry,
            MetadataIndexes(None, ttl_s=60),
        )
        async with agent_server(agent, telemetry=telemetry) as target:
            given = AgentInput(
                agent_name="sql",
                task="Total amount in sales.csv",
                metadata=TaskMetadata(user_id="ada", run_id="run-1"),
            )
            _, result = await call_agent(target, given, timeout_s=20)
            given.task = "Total amount in other.csv"
            _, missing = await call_agent(target, given, timeout_s=20)
    assert result.status == SUCCEEDED
    assert result.tainted
    assert [source.title for source in result.sources] == ["sales.csv"]
    assert from_value_map(result.data)["rows"] == [{"total": pytest.approx(14.75)}]
    assert {name for _, name in database.asked} == {"files"}
    prompts = [request.prompt for request in model.requests if request.schema == "QueryDraft"]
    assert "DuckDB" in prompts[0]
    assert "The uploaded file sales.csv" in prompts[0]
    assert missing.status == FAILED
    assert missing.error.type == "InvalidArgument"
