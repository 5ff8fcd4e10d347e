"""The company's REST API agrees with the company's database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
from asyncpg import Connection

from bos_demo.company import DEFAULT_TODAY
from bos_demo.company_api import CompanyApi, serve_company_api

TICKET = {"customer": "Sonbhadra Cement", "topic": "quality", "text": "Leaking."}


@dataclass
class Client:
    api: CompanyApi
    session: aiohttp.ClientSession
    headers: dict[str, str]

    async def call(self, method: str, path: str, **more: Any) -> tuple[int, Any, Any]:
        headers = {**self.headers, **more.pop("headers", {})}
        url = self.api.base_url + path
        async with self.session.request(method, url, headers=headers, **more) as answer:
            return answer.status, await answer.json(), answer.headers

    async def get(self, path: str, **query: str) -> Any:
        status, body, _ = await self.call("GET", path, params=query)
        assert status == 200, body
        return body


@pytest.fixture
async def client(company_dsn: str) -> AsyncIterator[Client]:
    async with (
        serve_company_api(company_dsn, "company", DEFAULT_TODAY) as api,
        aiohttp.ClientSession() as session,
    ):
        client = Client(api, session, {})
        sign_in = {"email": api.email, "password": api.password}
        status, body, _ = await client.call("POST", f"/token?key={api.web_api_key}", json=sign_in)
        assert (status, body["expiresIn"]) == (200, "3600")
        client.headers["Authorization"] = f"Bearer {body['idToken']}"
        yield client


async def test_nothing_but_the_document_is_open(client: Client) -> None:
    client.headers.clear()
    document = await client.get("/openapi.json")
    assert document["openapi"] == "3.1.0"
    for path, item in document["paths"].items():
        for method in item:
            status, body, _ = await client.call(method.upper(), path)
            assert (status, "bearer token" in body["detail"]) == (401, True), (method, path)
    wrong = {"email": client.api.email, "password": "guess"}
    status, _, _ = await client.call("POST", f"/token?key={client.api.web_api_key}", json=wrong)
    assert status == 400


async def test_lists_hold_every_row_over_their_pages(client: Client, company: Connection) -> None:
    products, page = [], "/v1/products?per_page=100"
    while page:
        _, body, headers = await client.call("GET", page)
        products += [each["sku"] for each in body]
        page = headers.get("Link", "").partition(">")[0].removeprefix("<")
    assert products == [
        r["sku"] for r in await company.fetch("SELECT sku FROM products ORDER BY 1")
    ]
    for text in ("' OR 1=1 --", "%"):
        assert await client.get("/v1/products", search=text) == []
    orders = await client.get("/v1/orders", status="open", per_page="100")
    count = await company.fetchval("SELECT count(*) FROM purchase_orders WHERE status = 'open'")
    assert orders["total"] == count == len(orders["items"])
    stock, cursor = 0, "0"
    while cursor:
        body = await client.get("/v1/stock", cursor=cursor)
        stock += sum(each["quantity"] for each in body["items"])
        cursor = body["next_cursor"]
    assert stock == await company.fetchval("SELECT sum(quantity_on_hand) FROM stock_levels")


async def test_a_ticket_is_opened_once_per_key(client: Client, company: Connection) -> None:
    last = await company.fetchval("SELECT max(ticket_id) FROM support_tickets")

    async def open_ticket(key: str, **changes: str) -> tuple[int, Any]:
        status, body, _ = await client.call(
            "POST", "/v1/tickets", json={**TICKET, **changes}, headers={"Idempotency-Key": key}
        )
        return status, body

    status, first = await open_ticket("a")
    assert (status, first["id"], first["priority"]) == (201, last + 1, "normal")
    assert await open_ticket("a") == (200, first)
    assert (await open_ticket("a", text="Another."))[0] == 409
    assert (await open_ticket("b"))[1]["id"] == last + 2
    assert client.api.tickets.effects == 2
    listed = await client.get("/v1/tickets", status="open", limit="3")
    assert [each["id"] for each in listed["items"]][:2] == [last + 2, last + 1]
    assert listed["has_more"]
    status, changed, _ = await client.call(
        "PATCH", f"/v1/tickets/{last + 1}", json={"priority": "high"}
    )
    assert (status, changed["priority"]) == (200, "high")
    # The company's own rows stay as they are.
    assert await company.fetchval("SELECT max(ticket_id) FROM support_tickets") == last


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "reason"),
    [
        ("GET", "/v1/shipments", None, 400, "startDateTime is missing"),
        ("GET", "/v1/orders/nope", None, 404, "no such order"),
        ("GET", "/v1/orders?status=lost", None, 422, "status must be one of"),
        ("GET", "/v1/products?per_page=" + "9" * 50, None, 422, "per_page must be"),
        ("POST", "/v1/tickets", TICKET, 400, "Idempotency-Key"),
        ("PATCH", "/v1/tickets/1", {"priority": "high"}, 404, "opened through the API"),
        ("POST", "/v1/stock/search", {"skus": "x"}, 422, "skus must be"),
    ],
)
async def test_a_wrong_call_has_a_reason(
    client: Client, method: str, path: str, body: Any, status: int, reason: str
) -> None:
    found, said, _ = await client.call(method, path, json=body)
    assert (found, reason in said["detail"]) == (status, True), said
