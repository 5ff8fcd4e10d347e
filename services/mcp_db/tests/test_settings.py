import pytest

from bos_errors import ConfigurationError
from bos_mcp_db.databases import open_databases
from bos_mcp_db.settings import McpDbSettings


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    for name in ("BOS_DATABASE_URL", "BOS_DATABASE_ALLOWED_TABLES", "BOS_MCP_DB_DATABASES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(str(tmp_path))


def test_two_variables_configure_one_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOS_DATABASE_URL", "postgresql://u:p@h/d")
    monkeypatch.setenv("BOS_DATABASE_ALLOWED_TABLES", "orders, sales.targets,")

    (name, database), *others = McpDbSettings.load().named_databases().items()

    assert (name, others) == ("main", [])
    assert database.allowed_tables == ("orders", "sales.targets")
    assert "p@h" not in repr(database)


def test_several_named_databases_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "BOS_MCP_DB_DATABASES",
        '{"a": {"url": "sqlite:///a.db", "allowed_tables": ["x"]},'
        ' "b": {"url": "postgresql://h/b", "allowed_tables": ["y"], "default_schema": "sales"}}',
    )

    named = McpDbSettings.load().named_databases()

    assert list(named) == ["a", "b"]
    assert named["b"].default_schema == "sales"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "BOS_DATABASE_URL"),
        ({"database_url": "sqlite:///a.db"}, "BOS_DATABASE_ALLOWED_TABLES"),
        ({"database_url": "sqlite:///a.db", "database_allowed_tables": "*"}, "no wildcards"),
        ({"database_url": "sqlite:///a.db", "database_allowed_tables": "public.*"}, "wildcards"),
        (
            {"database_url": "sqlite:///a.db", "database_allowed_tables": "sqlite_master"},
            "system catalogue",
        ),
        ({"database_url": "oracle://h/d", "database_allowed_tables": "a"}, "postgresql://"),
        ({"database_url": "mssql://h/d", "database_allowed_tables": "a"}, "mssql://user"),
        ({"database_url": "sqlite://host/a.db", "database_allowed_tables": "a"}, "sqlite:////"),
        ({"database_url": "sqlite:///", "database_allowed_tables": "a"}, "sqlite:////"),
        ({"databases": {"a": {"url": "sqlite:///a.db", "allowed_tables": []}}}, "DATABASES"),
        ({"max_estimated_cost": -1}, "MAX_ESTIMATED_COST"),
    ],
)
async def test_unusable_settings_name_the_fix(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        async with open_databases(McpDbSettings.load(**settings)):
            pass

    assert "://h" not in caught.value.message


async def test_one_name_twice_is_refused() -> None:
    settings = McpDbSettings.load(
        database_url="sqlite:///a.db",
        database_allowed_tables="a",
        databases={"main": {"url": "sqlite:///b.db", "allowed_tables": ["b"]}},
    )

    with pytest.raises(ConfigurationError, match="configured twice"):
        settings.named_databases()
