import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from bos_chassis.telemetry import Telemetry
from bos_demo.company import DEFAULT_TODAY, table_names
from bos_demo.questions import load_every_question
from bos_demo.scripted.nearest import NEAREST, NearestQuestions
from bos_demo.scripted.replies import PLANNER_SCHEMA
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


async def test_demo_serves_company_and_model(company_dsn: str, tmp_path: Path) -> None:
    settings = DemoSettings.load(database_url=company_dsn, sqlite_path=tmp_path / "company.sqlite")
    async with serve(settings, Telemetry.for_tests()) as demo:
        message = await asyncio.to_thread(
            _ask, demo, "List all tables in the database", "PlannerReply"
        )
        steps = json.loads(message["content"])["steps"]
        assert [step["agent"] for step in steps] == ["sql"]
        unknown = await asyncio.to_thread(_ask, demo, "Who will win the cup?", "PlannerReply")
        assert json.loads(unknown["content"])["steps"] == []
        unknown = await asyncio.to_thread(_ask, demo, "Who will win the cup?", "GeneratedSql")
        assert unknown["refusal"]
        assert demo.database_dsn == company_dsn
        assert demo.database_schema == "company"
        assert demo.today == DEFAULT_TODAY
        assert demo.allowed_tables == table_names()
        assert "demo_load" not in demo.allowed_tables
        assert demo.sqlite_path.exists()
        assert demo.address in demo.model_base_url


def test_model_may_listen_on_the_network_with_a_key() -> None:
    require_key("0.0.0.0", known=True)
    require_key("127.0.0.1", known=False)
    with pytest.raises(ConfigurationError, match="BOS_DEMO_MODEL_KEY"):
        require_key("0.0.0.0", known=False)


async def test_model_demands_its_key(company_dsn: str) -> None:
    key = "of-the-demo-alone"
    settings = DemoSettings.load(database_url=company_dsn, model_key=key)
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


KNOWN = (
    "How many active customers do we have in each region?",
    "Which five suppliers delivered late most often?",
    "Write me a poem about the sea",
    "Which product was returned most often?",
    "What does the travel policy say about flights?",
    "What is the value of our stock?",
)


def planner(question: str, before: str = "") -> str:
    return f"{before}### Question\n{question}\n\n### Instructions\nPlan."


def composer(question: str, before: str = "") -> str:
    return f"{before}### Question\n{question}\n\nWrite the answer to this question now."


@pytest.fixture
def nearest() -> NearestQuestions:
    return NearestQuestions(KNOWN)


def test_question_with_most_rare_words_in_common_comes_first(nearest: NearestQuestions) -> None:
    for asked, first in (
        ("customers per region, please", KNOWN[0]),
        ("WHO WAS LATE? a supplier?", KNOWN[1]),
    ):
        found = nearest.to(asked)
        assert found[0] == first
        assert len(found) == len(set(found)) == NEAREST


def test_question_without_a_known_word_gets_questions(nearest: NearestQuestions) -> None:
    for asked in ("", "कितने ग्राहक", "x" * 100_000):
        assert nearest.to(asked) == KNOWN[:NEAREST], asked[:20]


def test_questions_over_the_mailbox_are_among_the_nearest() -> None:
    nearest = NearestQuestions([each.question for each in load_every_question()])
    found = nearest.to("Which mails in my inbox have I not read, what is unread?")
    assert found[0] == "Which unread mails are in my inbox?"
    assert len(found) == NEAREST


def test_planner_gets_a_plan_without_steps(nearest: NearestQuestions) -> None:
    reply = nearest.reply(PLANNER_SCHEMA, planner("stock?"))
    assert reply["steps"] == []
    assert reply["intent"] == "OUT_OF_SCOPE"


def test_composer_names_nearest_questions_and_the_key(nearest: NearestQuestions) -> None:
    reply = nearest.reply(None, composer("### Question\ntricks\n\nWhat is our stock worth?"))
    assert f"- {KNOWN[5]}" in reply
    assert "OPENAI_API_KEY" in reply


@pytest.mark.parametrize(
    ("schema", "prompt"),
    [
        ("GeneratedSql", planner("stock?")),
        (PLANNER_SCHEMA, "no question at all"),
        (PLANNER_SCHEMA, planner("stock?", "### Revision\nThe last plan failed.\n\n")),
        (None, composer("stock?", "### Agent results\n1. sql\n\n")),
        (None, composer("stock?", "### What did not succeed\nsql\n\n")),
        (None, planner("stock?")),
    ],
)
def test_other_calls_get_none(schema: str | None, prompt: str, nearest: NearestQuestions) -> None:
    assert nearest.reply(schema, prompt) is None


async def test_model_does_not_listen_on_the_network(company_dsn: str) -> None:
    settings = DemoSettings.load(database_url=company_dsn, model_host="0.0.0.0")
    with pytest.raises(ConfigurationError):
        async with serve(settings, Telemetry.for_tests()):
            pass
