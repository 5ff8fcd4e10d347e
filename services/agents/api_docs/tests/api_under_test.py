"""An HTTP API that tests script: it records every request and counts effects by their key."""

import asyncio
import json
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from bos_http import HttpPolicy
from bos_testkit.scripted_model.replies import Fixture, fixture

LOOPBACK = (IPv4Network("127.0.0.1/32"),)
STEP = {"tools": ("call_api_read", "call_api_write")}

DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "Orders API", "description": "Orders and tickets. Sign in for a token."},
    "tags": [{"name": "orders", "description": "Orders are purchase orders of the company."}],
    "paths": {
        "/orders": {
            "get": {
                "summary": "List purchase orders",
                "tags": ["orders"],
                "parameters": [
                    {"name": "status", "in": "query", "schema": {"enum": ["open", "received"]}},
                    {"name": "page", "in": "query", "schema": {"type": "integer"}},
                ],
                "responses": {"200": {"description": "Orders"}},
            },
        },
        "/orders/{order_id}": {
            "get": {
                "summary": "One purchase order",
                "parameters": [{"name": "order_id", "in": "path", "required": True}],
                "responses": {"200": {"description": "An order"}},
            },
            "delete": {"summary": "Delete a purchase order", "responses": {}},
        },
        "/shipments": {
            "get": {
                "summary": "Shipments between two moments",
                "parameters": [
                    {"name": "startDateTime", "in": "query"},
                    {"name": "endDateTime", "in": "query"},
                ],
                "responses": {},
            }
        },
        "/search": {"post": {"summary": "Search orders", "x-bos-read-only": True, "responses": {}}},
        "/tickets": {
            "post": {
                "summary": "Open a support ticket",
                "parameters": [{"name": "Idempotency-Key", "in": "header"}],
                "responses": {},
            }
        },
        "/notes": {"post": {"summary": "Leave a note", "responses": {}}},
    },
}


@dataclass
class Seen:
    method: str
    path: str
    """As sent, percent-encoded, with its query."""
    headers: dict[str, str]
    body: str


@dataclass
class ApiUnderTest:
    """Behaviour of the API; tests change the fields."""

    base_url: str = ""
    seen: list[Seen] = field(default_factory=list)
    effects: list[str] = field(default_factory=list)
    """Keys of tickets and notes that were made, one per effect."""
    accepted: set[str] | None = None
    """Bearer tokens that are accepted; None: no token is needed."""
    signed_in: int = 0
    expires_in: str = "3600"
    replies: dict[str, Any] = field(default_factory=dict)
    """Instead of the usual answer, by path: a Response, or what makes one of a request."""
    hold: asyncio.Event | None = None
    """If set, writes answer only then; their effect happens before."""
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def application(self) -> Starlette:
        methods = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"]
        return Starlette(routes=[Route("/{path:path}", self._answer, methods=methods)])

    async def _answer(self, request: Request) -> Response:
        raw = request.scope["raw_path"].decode()
        query = request.scope["query_string"].decode()
        body = (await request.body()).decode()
        path = request.scope["path"]
        self.seen.append(
            Seen(request.method, f"{raw}?{query}" if query else raw, dict(request.headers), body)
        )
        if path == "/openapi.json":
            return JSONResponse(DOCUMENT)
        if path == "/token":
            return self._token(body)
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self.accepted is not None and given not in self.accepted:
            return JSONResponse({"detail": "The token is not accepted."}, status_code=401)
        if path in self.replies:
            reply = self.replies[path]
            return reply if isinstance(reply, Response) else reply(request)
        if request.method in ("POST", "DELETE", "PUT", "PATCH") and path != "/search":
            return await self._write(request, path, body)
        return self._read(request, path)

    def _token(self, body: str) -> Response:
        if json.loads(body) != {"email": "a@b.c", "password": "pw", "returnSecureToken": True}:
            return JSONResponse({"error": "INVALID_PASSWORD"}, status_code=400)
        self.signed_in += 1
        token = f"token-{self.signed_in}"
        if self.accepted is not None:
            self.accepted.add(token)
        return JSONResponse({"idToken": token, "expiresIn": self.expires_in})

    def _read(self, request: Request, path: str) -> Response:
        if path == "/orders":
            page = int(request.query_params.get("page", "1"))
            rows = [{"order": f"PO-{page}-{n}", "total": 12.5 * n} for n in (1, 2)]
            headers = {"Link": f'</orders?page={page + 1}>; rel="next"'} if page < 3 else {}
            return JSONResponse({"items": rows, "page": page}, headers=headers)
        if path == "/search":
            return JSONResponse([{"order": "PO-1"}])
        if path.startswith("/orders/"):
            order = {"order": path.removeprefix("/orders/"), "status": "open", "lines": [{"n": 1}]}
            return JSONResponse(order)
        if path == "/shipments":
            query = request.query_params
            if not (query.get("startDateTime") and query.get("endDateTime")):
                return JSONResponse({"detail": "startDateTime is missing"}, status_code=400)
            return JSONResponse({"from": query["startDateTime"], "to": query["endDateTime"]})
        return PlainTextResponse("nothing here", status_code=404)

    async def _write(self, request: Request, path: str, body: str) -> Response:
        key = request.headers.get("idempotency-key", "")
        if path != "/tickets" or key not in self.effects:
            self.effects.append(key)
        self.arrived.set()
        if self.hold is not None:
            await self.hold.wait()
        return JSONResponse({"made": json.loads(body) if body else None}, status_code=201)


def redirect(url: str, status: int = 302) -> Response:
    return RedirectResponse(url, status_code=status)


def planned(task: str, method: str = "GET", path: str = "/orders", **more: Any) -> Fixture:
    plan = {"make_request": True, "method": method, "path": path, "reason": "It fits.", **more}
    return fixture(f"plan of {task}", [f"### Task\n{task}"], schema="ApiCallPlan", json=plan)


def worded(task: str, answer: str) -> Fixture:
    texts = [f"### Task\n{task}\n\n### Call"]
    return fixture(f"words of {task}", texts, schema="ApiSummary", json={"answer": answer})


def policy(*urls: str, **changes: Any) -> HttpPolicy:
    origins = {"{0.scheme}://{0.netloc}".format(urlsplit(url)): LOOPBACK for url in urls}
    return HttpPolicy.load(internal_origins=origins, **changes)
