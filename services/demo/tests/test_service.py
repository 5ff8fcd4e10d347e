import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from bos_chassis.telemetry import Telemetry
from bos_demo.company import DEFAULT_TODAY, table_names
from bos_demo.service import Demo, require_key, serve
from bos_demo.settings import DemoSettings
from bos_errors import ConfigurationError


def _ask(demo: Demo, question: str, schema: str) -> Any:
    body = {
        "model": "scripted",
        "messages": [
            {"role": "user", "content": f"### Question\n{question}\n\n### Instructions\nnone"}
        ],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": schema, "schema": {"type": "object"}},
        },
    }
    request = Request(
        f"{demo.model_base_url}/chat/completions",
        data=json.dumps(body).encode(),
        headers={"content-type": "application/json"},
    )
    with urlopen(request, timeout=10) as response:
        return json.load(response)["choices"][0]["message"]


async def test_demo_serves_the_company_and_a_model_with_its_replies(
    postgres_dsn: str, tmp_path: Path
) -> None:
    settings = DemoSettings.load(database_url=postgres_dsn, sqlite_path=tmp_path / "company.sqlite")
    async with serve(settings, Telemetry.for_tests()) as demo:
        message = await asyncio.to_thread(
            _ask, demo, "List all tables in the database", "PlannerReply"
        )
        steps = json.loads(message["content"])["steps"]
        assert [step["agent"] for step in steps] == ["sql"]
        assert demo.database_dsn == postgres_dsn
        assert demo.database_schema == "company"
        assert demo.today == DEFAULT_TODAY
        assert demo.allowed_tables == table_names()
        assert "demo_load" not in demo.allowed_tables
        assert demo.sqlite_path is not None
        assert demo.sqlite_path.exists()
        assert demo.address in demo.model_base_url


async def test_unknown_questions_are_planned_without_steps_and_queries_for_them_refused(
    postgres_dsn: str,
) -> None:
    settings = DemoSettings.load(database_url=postgres_dsn)
    async with serve(settings, Telemetry.for_tests()) as demo:
        message = await asyncio.to_thread(_ask, demo, "Who will win the cup?", "PlannerReply")
        assert json.loads(message["content"])["steps"] == []
        message = await asyncio.to_thread(_ask, demo, "Who will win the cup?", "GeneratedSql")
        assert message["refusal"]


async def test_model_does_not_listen_on_the_network(postgres_dsn: str) -> None:
    settings = DemoSettings.load(database_url=postgres_dsn, model_host="0.0.0.0")
    with pytest.raises(ConfigurationError):
        async with serve(settings, Telemetry.for_tests()):
            pass


def test_model_may_listen_on_the_network_with_a_key() -> None:
    require_key("0.0.0.0", known=True)
    require_key("127.0.0.1", known=False)
    with pytest.raises(ConfigurationError, match="BOS_DEMO_MODEL_KEY"):
        require_key("0.0.0.0", known=False)


async def test_model_demands_its_key(postgres_dsn: str) -> None:
    key = "of-the-demo-alone"
    settings = DemoSettings.load(database_url=postgres_dsn, model_key=key)
    async with serve(settings, Telemetry.for_tests()) as demo:

        def status(given: str) -> int:
            request = Request(
                f"{demo.model_base_url}/models", headers={"Authorization": f"Bearer {given}"}
            )
            try:
                with urlopen(request, timeout=10) as response:
                    return int(response.status)
            except HTTPError as error:
                with error:
                    return error.code

        assert await asyncio.to_thread(status, key) == 200
        assert await asyncio.to_thread(status, key + "x") == 401


def test_database_url_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BOS_DEMO_DATABASE_URL", raising=False)
    with pytest.raises(ConfigurationError, match="BOS_DEMO_DATABASE_URL"):
        DemoSettings.load()
