"""The company's API as an HTTP server on loopback."""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import date
from typing import Any
from urllib.parse import urlencode

import asyncpg
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bos_demo.company_api.document import document
from bos_demo.company_api.rows import CompanyRows
from bos_demo.company_api.tickets import OpenedTickets
from bos_testkit.asgi_server import asgi_server

EMAIL = "integration@nilgiri-flow.example"
TOKEN_LIFE_S = 3600
_MAX_TOKENS = 1_000
_MAX_BODY_BYTES = 64 * 1024
_MAX_TEXT = 2_000
_MAX_SIZE = 100
_CURSOR_SIZE = 50
_REPORT_S = 0.5
"""How long the report takes: it is the slow endpoint."""
_STATUS, _PRIORITY = ("open", "waiting", "closed"), ("low", "normal", "high", "urgent")
_TOPIC = ("delivery", "quality", "billing", "technical")


@dataclass(frozen=True)
class CompanyApi:
    """Where the API is, and how to sign in."""

    base_url: str
    email: str
    password: str
    web_api_key: str
    tickets: OpenedTickets

    @property
    def settings(self) -> dict[str, str]:
        """Settings for a caller: document, base URL and sign-in."""
        return {
            "openapi": f"{self.base_url}/openapi.json",
            "base_url": self.base_url,
            "token_url": "/token",
            "web_api_key": self.web_api_key,
            "email": self.email,
            "password": self.password,
        }


@asynccontextmanager
async def serve_company_api(
    dsn: str, schema: str, today: date, *, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[CompanyApi]:
    """Serve the API until the context exits; password and key are made for this start.

    Args:
        dsn: Database of the sample company.
        schema: Its schema.
        today: The company's fixed today.
        host: Address, a loopback one.
        port: Port; 0 takes a free one.
    """
    async with AsyncExitStack() as stack:
        pool = await stack.enter_async_context(
            asyncpg.create_pool(
                dsn,
                min_size=0,
                max_size=2,
                command_timeout=10,
                server_settings={"search_path": schema, "application_name": "bos-demo-api"},
            )
        )
        api = _Api(CompanyRows(pool), OpenedTickets(today))
        base_url = await stack.enter_async_context(
            asgi_server(api.application(), host=host, port=port)
        )
        yield CompanyApi(base_url, EMAIL, api.password, api.web_api_key, api.tickets)


class _Api:
    """Endpoints, and the tokens that were made."""

    def __init__(self, rows: CompanyRows, tickets: OpenedTickets) -> None:
        self.rows = rows
        self.tickets = tickets
        self.password = secrets.token_urlsafe(16)
        self.web_api_key = secrets.token_urlsafe(16)
        self._tokens: OrderedDict[str, float] = OrderedDict()

    def application(self) -> Starlette:
        """The API as an ASGI application."""
        routes = [
            Route("/openapi.json", _documented),
            Route("/token", self._token, methods=["POST"]),
            *(
                Route(path, self._signed_in(endpoint), methods=[method])
                for method, path, endpoint in self._endpoints()
            ),
        ]
        return Starlette(routes=routes, exception_handlers={HTTPException: _failed})

    def _endpoints(self) -> list[tuple[str, str, Callable[[Request], Awaitable[Response]]]]:
        return [
            ("GET", "/v1/products", self._products),
            ("GET", "/v1/products/{sku}", self._product),
            ("GET", "/v1/stock", self._stock),
            ("POST", "/v1/stock/search", self._stock_of),
            ("GET", "/v1/orders", self._orders),
            ("GET", "/v1/orders/{number}", self._order),
            ("GET", "/v1/shipments", self._shipments),
            ("GET", "/v1/tickets", self._tickets),
            ("POST", "/v1/tickets", self._open_ticket),
            ("GET", "/v1/tickets/{id}", self._ticket),
            ("PATCH", "/v1/tickets/{id}", self._change_ticket),
            ("GET", "/v1/reports/stock-value", self._stock_value),
        ]

    async def _token(self, request: Request) -> Response:
        given = await _body(request)
        right = hmac.compare_digest(str(given.get("password")).encode(), self.password.encode())
        key = request.query_params.get("key", "")
        if given.get("email") != EMAIL or not right or key != self.web_api_key:
            raise HTTPException(400, "E-mail, password or key is wrong.")
        token = secrets.token_urlsafe(24)
        self._tokens[token] = time.monotonic() + TOKEN_LIFE_S
        while len(self._tokens) > _MAX_TOKENS:
            self._tokens.popitem(last=False)
        return JSONResponse({"idToken": token, "expiresIn": str(TOKEN_LIFE_S)})

    def _signed_in(
        self, endpoint: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def checked(request: Request) -> Response:
            scheme, _, token = request.headers.get("authorization", "").partition(" ")
            if scheme != "Bearer" or self._tokens.get(token, 0.0) <= time.monotonic():
                raise HTTPException(401, "The bearer token is missing or has expired.")
            return await endpoint(request)

        return checked

    async def _products(self, request: Request) -> Response:
        query, (page, size) = request.query_params, _page(request)
        found = await self.rows.products(
            query.get("search", ""), query.get("category", ""), size + 1, (page - 1) * size
        )
        headers = {}
        if len(found) > size:
            following = urlencode({**query, "page": page + 1})
            headers["Link"] = f'</v1/products?{following}>; rel="next"'
        return JSONResponse(found[:size], headers=headers)

    async def _product(self, request: Request) -> Response:
        return _found(await self.rows.product(request.path_params["sku"]), "product")

    async def _stock(self, request: Request) -> Response:
        query = request.query_params
        offset = _number(query.get("cursor", "0"), "cursor", 0, 1_000_000)
        below = query.get("below_reorder_level", "false").lower() in ("true", "1")
        found = await self.rows.stock(query.get("warehouse", ""), below, _CURSOR_SIZE + 1, offset)
        more = str(offset + _CURSOR_SIZE) if len(found) > _CURSOR_SIZE else None
        return JSONResponse({"items": found[:_CURSOR_SIZE], "next_cursor": more})

    async def _stock_of(self, request: Request) -> Response:
        skus = (await _body(request)).get("skus")
        if not isinstance(skus, list) or not 0 < len(skus) <= _MAX_SIZE:
            raise HTTPException(422, "skus must be a list of 1 to 100 stock keeping units.")
        return JSONResponse(await self.rows.stock_of([str(sku) for sku in skus]))

    async def _orders(self, request: Request) -> Response:
        query, (page, size) = request.query_params, _page(request)
        status = _one_of(query.get("status", ""), ("received", "open", "cancelled", ""), "status")
        found, total = await self.rows.orders(
            status, query.get("supplier", ""), size, (page - 1) * size
        )
        return JSONResponse({"items": found, "page": page, "total": total})

    async def _order(self, request: Request) -> Response:
        return _found(await self.rows.order(request.path_params["number"]), "order")

    async def _shipments(self, request: Request) -> Response:
        query = request.query_params
        start, end = (_day(query.get(name), name) for name in ("startDateTime", "endDateTime"))
        offset = _number(query.get("offset", "0"), "offset", 0, 1_000_000)
        found = await self.rows.shipments(start, end, _CURSOR_SIZE + 1, offset)
        following = urlencode({**query, "offset": offset + _CURSOR_SIZE})
        more = f"/v1/shipments?{following}" if len(found) > _CURSOR_SIZE else None
        return JSONResponse({"items": found[:_CURSOR_SIZE], "next": more})

    async def _tickets(self, request: Request) -> Response:
        query = request.query_params
        status = _one_of(query.get("status", ""), (*_STATUS, ""), "status")
        priority = _one_of(query.get("priority", ""), (*_PRIORITY, ""), "priority")
        offset = _number(query.get("offset", "0"), "offset", 0, 1_000_000)
        limit = _number(query.get("limit", "50"), "limit", 1, _MAX_SIZE)
        opened = self.tickets.listed(status, priority)
        found = opened[offset : offset + limit + 1]
        after = max(0, offset - len(opened))
        found += await self.rows.tickets(status, priority, limit + 1 - len(found), after)
        return JSONResponse({"items": found[:limit], "has_more": len(found) > limit})

    async def _ticket(self, request: Request) -> Response:
        number = _number(request.path_params["id"], "id", 1, 2**31 - 1)
        return _found(self.tickets.find(number) or await self.rows.ticket(number), "ticket")

    async def _open_ticket(self, request: Request) -> Response:
        key, given = request.headers.get("idempotency-key", ""), await _body(request)
        if not key or len(key) > 500:
            raise HTTPException(400, "Send an Idempotency-Key of at most 500 characters.")
        try:
            if known := self.tickets.known(key, given):
                return JSONResponse(known)
        except ValueError as error:
            raise HTTPException(409, str(error)) from None
        _one_of(given.get("topic"), _TOPIC, "topic")
        _one_of(given.get("priority", "normal"), _PRIORITY, "priority")
        text, customer = given.get("text"), given.get("customer")
        if not isinstance(text, str) or not 0 < len(text) <= _MAX_TEXT:
            raise HTTPException(422, f"text must have 1 to {_MAX_TEXT} characters.")
        if not isinstance(customer, str) or not await self.rows.has_customer(customer):
            raise HTTPException(422, "customer must be the registered name of a customer.")
        last = await self.rows.last_ticket()
        # Another request with this key may have come while the database was asked.
        try:
            ticket = self.tickets.known(key, given) or self.tickets.open(key, given, last)
        except (ValueError, OverflowError) as error:
            raise HTTPException(409, str(error)) from None
        return JSONResponse(ticket, status_code=201)

    async def _change_ticket(self, request: Request) -> Response:
        number = _number(request.path_params["id"], "id", 1, 2**31 - 1)
        given, ticket = await _body(request), self.tickets.find(number)
        if ticket is None:
            raise HTTPException(404, "No ticket of this number was opened through the API.")
        if unknown := given.keys() - {"priority", "status"}:
            raise HTTPException(422, f"Only priority and status change, not {sorted(unknown)}.")
        if "priority" in given:
            ticket["priority"] = _one_of(given["priority"], _PRIORITY, "priority")
        if "status" in given:
            ticket["status"] = _one_of(given["status"], _STATUS, "status")
        return JSONResponse(ticket)

    async def _stock_value(self, request: Request) -> Response:
        await asyncio.sleep(_REPORT_S)
        return JSONResponse(await self.rows.stock_value())


async def _documented(request: Request) -> Response:
    return JSONResponse(document())


async def _failed(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    detail = error.detail if isinstance(error, HTTPException) else "Something went wrong."
    return JSONResponse({"detail": detail}, status_code=status)


async def _body(request: Request) -> dict[str, Any]:
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > _MAX_BODY_BYTES:
            raise HTTPException(413, "The body is too large.")
    try:
        given = json.loads(bytes(content))
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise HTTPException(422, "The body must be a JSON object.")
    return given


def _found(value: dict[str, Any] | None, what: str) -> Response:
    if value is None:
        raise HTTPException(404, f"There is no such {what}.")
    return JSONResponse(value)


def _page(request: Request) -> tuple[int, int]:
    query = request.query_params
    return (
        _number(query.get("page", "1"), "page", 1, 100_000),
        _number(query.get("per_page", "50"), "per_page", 1, _MAX_SIZE),
    )


def _number(text: str, name: str, least: int, most: int) -> int:
    if not text.isascii() or not text.isdecimal() or not least <= int(text[:12]) <= most:
        raise HTTPException(422, f"{name} must be a whole number from {least} to {most}.")
    return int(text)


def _one_of(value: Any, allowed: tuple[str, ...], name: str) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise HTTPException(422, f"{name} must be one of {', '.join(filter(None, allowed))}.")
    return value


def _day(text: str | None, name: str) -> date:
    if not text:
        raise HTTPException(400, f"{name} is missing; write it as 2026-06-01T00:00:00.")
    try:
        return date.fromisoformat(text[:10])
    except ValueError:
        raise HTTPException(422, f"{name} must be written as 2026-06-01T00:00:00.") from None
