"""A double of the Gmail API's published REST interface, and of Google's token endpoint."""

import base64
import email
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

CREDENTIALS = {
    "client_id": "client-1",
    "client_secret": "secret-of-the-client",
    "refresh_token": "1//refresh-token",
}
_ACCESS_TOKEN = "ya29.access-token"
_ID = re.compile(r'rfc822msgid:"?([^\s"]+)"?')


@dataclass
class Stored:
    label: str
    raw: bytes
    thread: str


@dataclass
class GmailDouble:
    """Messages and drafts; ``fault`` is asked before a draft is sent, ``lost`` after it was."""

    url: str = ""
    messages: dict[str, Stored] = field(default_factory=dict)
    drafts: dict[str, str] = field(default_factory=dict)
    """Ids of messages by ids of drafts."""
    queries: list[str] = field(default_factory=list)
    sent: list[bytes] = field(default_factory=list)
    fault: int = 0
    """Status of drafts/send instead of sending; 0: it works."""
    lost: bool = False
    """Whether the answer to drafts/send is lost after the message was sent."""
    shows_sent: bool = True
    """Whether what was sent is found by searches."""
    refused: bool = False
    """Whether the refresh token was revoked."""
    _count: int = 0

    def add(self, label: str, raw: bytes, thread: str = "") -> str:
        self._count += 1
        id = f"18f{self._count:05x}"
        self.messages[id] = Stored(label, raw, thread or f"t{id}")
        return id

    async def token(self, request: web.Request) -> web.Response:
        given = dict(await request.post())
        wanted = {**CREDENTIALS, "grant_type": "refresh_token"}
        if self.refused or given != wanted:
            return web.json_response({"error": "invalid_grant"}, status=400)
        return web.json_response({"access_token": _ACCESS_TOKEN, "expires_in": 3599})

    async def api(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {_ACCESS_TOKEN}":
            return web.json_response({"error": {"code": 401}}, status=401)
        path = request.match_info["path"]
        body = await request.json() if request.can_read_body else {}
        match request.method, path.split("/"):
            case "GET", ["messages"]:
                found = [{"id": id} for id in self._matching(request.query["q"])]
                most = int(request.query["maxResults"])
                return web.json_response({"messages": found[:most]} if found else {})
            case "GET", ["messages", id] if id in self.messages:
                message = self.messages[id]
                raw = base64.urlsafe_b64encode(message.raw).decode()
                return web.json_response({"id": id, "threadId": message.thread, "raw": raw})
            case "GET", ["drafts"]:
                fitting = set(self._matching(f"in:drafts {request.query['q']}"))
                ids = [{"id": id} for id, message in self.drafts.items() if message in fitting]
                return web.json_response({"drafts": ids} if ids else {})
            case "POST", ["drafts"]:
                raw = base64.urlsafe_b64decode(body["message"]["raw"])
                id = self.add("drafts", raw, body["message"].get("threadId", ""))
                self.drafts[f"r{id}"] = id
                return web.json_response({"id": f"r{id}", "message": {"id": id}})
            case "POST", ["drafts", "send"]:
                return self._send(body["id"])
            case "DELETE", ["drafts", id] if id in self.drafts:
                del self.messages[self.drafts.pop(id)]
                return web.Response(status=204)
        return web.json_response({"error": {"code": 404}}, status=404)

    def _send(self, draft: str) -> web.Response:
        if self.fault:
            return web.json_response({"error": {"code": self.fault}}, status=self.fault)
        if draft not in self.drafts:
            return web.json_response({"error": {"code": 404}}, status=404)
        message = self.messages.pop(self.drafts.pop(draft))
        self.sent.append(message.raw)
        id = self.add("sent" if self.shows_sent else "nowhere", message.raw, message.thread)
        if self.lost:
            return web.Response(status=502, text="lost", content_type="text/plain")
        return web.json_response({"id": id, "threadId": message.thread})

    def _matching(self, query: str) -> list[str]:
        """Newest first; of Gmail's syntax the folder, the Message-ID and plain words of senders."""
        self.queries.append(query)
        folder = re.search(r"in:(\w+)", query)
        wanted, sender = _ID.search(query), re.search(r'from:"([^"]*)"', query)
        found = []
        for id, message in self.messages.items():
            headers = email.message_from_bytes(message.raw)
            if folder and message.label != folder[1]:
                continue
            if wanted and str(headers["Message-ID"]).strip("<>") != wanted[1]:
                continue
            if sender and sender[1] not in str(headers["From"]).lower():
                continue
            found.append(id)
        return found[::-1]


@asynccontextmanager
async def gmail_double() -> AsyncIterator[GmailDouble]:
    double = GmailDouble()
    app = web.Application()
    app.router.add_post("/token", double.token)
    app.router.add_route("*", "/gmail/v1/users/me/{path:.*}", double.api)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    double.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield double
    finally:
        await runner.cleanup()


def secret() -> str:
    return json.dumps(CREDENTIALS)


def settings(double: GmailDouble) -> dict[str, Any]:
    from bos_http import HttpPolicy

    return {
        "gmail_api_url": double.url,
        "gmail_token_url": f"{double.url}/token",
        "http": HttpPolicy.load(internal_origins={double.url: ["127.0.0.0/8"]}),
    }
