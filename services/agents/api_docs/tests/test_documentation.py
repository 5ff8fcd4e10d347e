"""Questions about APIs: lists of endpoints, documentation, several APIs, no catalogue."""

import json
from pathlib import Path
from typing import Any

import pytest

from bos_api_docs.answers import asks_for_all
from bos_testkit.fixtures.agent_harness import FAILED, SUCCEEDED
from bos_testkit.scripted_model.replies import fixture

from .api_under_test import DOCUMENT, ApiUnderTest, planned

ALL = "List me all the API points available to you"
ABOUT = "How do I sign in to the orders API?"
CURATED = """
title: Stock API
endpoints:
  - method: GET
    path: /stock/{sku}
    description: Units on the shelf of a product
  - method: POST
    path: /stock/find
    description: Finds products
    read_only: true
snippets:
  - {title: Units, text: Quantities are in units of sale.}
"""


@pytest.mark.requirement("T-11", "E-01")
async def test_every_endpoint_is_listed_without_a_model(start: Any) -> None:
    agent = await start(models=False)
    done = await agent.do(ALL, tools=())
    assert done.result.status == SUCCEEDED
    assert len(done.rows) == 7
    listed = {(row["method"], row["path"]): row["approval"] for row in done.rows}
    assert listed["GET", "/orders"] == "none"
    assert listed["POST", "/search"] == "none"
    assert listed["DELETE", "/orders/{order_id}"] == "required"
    assert "- POST /tickets: Open a support ticket" in done.result.answer
    assert done.data["endpoints"][0]["api"] == "orders"
    quoted = await agent.do(ABOUT)
    assert quoted.result.status == SUCCEEDED
    assert "Sign in for a token." in quoted.result.answer
    assert quoted.result.confidence < 0.5


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        (ALL, True),
        ("Show me all endpoints of the API", True),
        ("List all open orders", False),
        ("What does the endpoint /orders return?", False),
    ],
)
@pytest.mark.requirement("T-11")
def test_lists_of_endpoints_and_of_data_are_distinguished(task: str, expected: bool) -> None:
    assert asks_for_all(task) is expected


@pytest.mark.requirement("E-01")
async def test_question_is_answered_from_the_docs(start: Any, api: ApiUnderTest) -> None:
    plan = {"make_request": False, "answer": "Sign in for a token.", "path": None}
    agent = await start(fixture("a", [f"### Task\n{ABOUT}"], schema="ApiCallPlan", json=plan))
    done = await agent.do(ABOUT)
    assert (done.result.status, done.result.answer) == (SUCCEEDED, "Sign in for a token.")
    assert done.result.sources[0].reference.startswith("orders: ")
    assert api.seen == []


async def test_apis_are_distinguished(start: Any, api: ApiUnderTest, tmp_path: Path) -> None:
    file = tmp_path / "stock.yaml"
    file.write_text(CURATED)
    task = "How many units of P-1 are on the shelf?"
    described = {"openapi": f"{api.base_url}/openapi.json", "base_url": api.base_url}
    stock = {"catalogue": str(file), "base_url": f"{api.base_url}/inner"}
    agent = await start(
        planned(task, path="/stock/{sku}", path_params={"sku": "P-1"}, api="stock"),
        apis={"orders": described, "stock": stock},
    )
    done = await agent.do(task)
    assert "1. [stock] GET /stock/{sku}" in agent.prompts()[0]
    assert done.result.error.type == "HttpError"  # the API under test knows no such path
    assert api.seen[0].path == "/inner/stock/P-1"
    assert "stock" in (await agent.card()).description


@pytest.mark.parametrize("source", ["broken.json", "http://127.0.0.1:9/x.json"])
async def test_an_unreadable_catalogue_is_said_and_ends_nothing(
    start: Any, api: ApiUnderTest, tmp_path: Path, source: str
) -> None:
    (tmp_path / "broken.json").write_text('{"openapi": "2.0"}')
    place = source if "://" in source else str(tmp_path / source)
    agent = await start(apis={"orders": {"openapi": place, "base_url": api.base_url}})
    done = await agent.do("Show the orders")
    assert (done.result.status, done.result.error.type) == (FAILED, "ConfigurationError")
    assert "The catalogue of the API orders could not be read" in done.result.error.message
    logged = [each for each in agent.telemetry.logs if each["event"] == "api catalogue not read"]
    assert [each["api"] for each in logged] == ["orders"]
    # A call that a plan gives whole needs no catalogue.
    done = await agent.do("Read it", inputs={"path": "/orders/1", "method": "GET"})
    assert done.result.status == SUCCEEDED


async def test_no_catalogue_at_all_names_the_setting(start: Any) -> None:
    agent = await start(apis={})
    done = await agent.do("Show the orders")
    assert done.result.error.type == "ConfigurationError"
    assert "BOS_API_DOCS_OPENAPI" in done.result.error.message


@pytest.mark.security
@pytest.mark.parametrize("fetched", [True, False])
async def test_documentation_of_a_url_taints_and_of_a_file_does_not(
    start: Any, api: ApiUnderTest, tmp_path: Path, fetched: bool
) -> None:
    task = "Open a support ticket"
    file = tmp_path / "openapi.json"
    file.write_text(json.dumps(DOCUMENT))
    own = {} if fetched else {"openapi": str(file)}
    agent = await start(planned(task, "POST", "/tickets", json_body="{}"), own=own)
    assert (await agent.do(task)).action.tainted is fetched
    assert (await agent.do(ALL, tools=())).result.tainted is fetched


async def test_the_model_may_say_that_a_list_is_wanted(start: Any) -> None:
    task = "Welche Schnittstellen kennst du?"
    plan = {"make_request": False, "list_endpoints": True}
    agent = await start(fixture("l", [f"### Task\n{task}"], schema="ApiCallPlan", json=plan))
    assert len((await agent.do(task)).rows) == 7
