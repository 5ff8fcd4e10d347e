"""mcp_db's part of the table: what it offers over MCP and HTTP, and whom it answers.

What there is comes from the server: its tools from its own list, its methods and paths from what
``bos_mcp_db`` builds. A new one fails ``test_cells`` until it has a row here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from unittest.mock import MagicMock

import aiohttp

from bos_mcp_db.api import Tools, build_server
from bos_mcp_db.web import HEALTH_PATH, MCP_PATH, build_app

from . import cell_kinds as kinds
from .cell_calls import Heard, Metadata, call_http
from .cell_harness import TABLE, CellHarness
from .cell_kinds import OTHERS, Kind, Outcome

_ACCEPT = "application/json, text/event-stream"
_CALL = "tools/call"
VERBS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
OPEN_AT_MCP = (HEALTH_PATH,)
"""Paths that everybody may ask; all others, also those that there are not, ask for a token."""
PATHS_AT_MCP = (MCP_PATH, "/", "/nothing", f"{MCP_PATH}/", f"{HEALTH_PATH}/", f"/{HEALTH_PATH}")
_PROTOCOL = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "cells", "version": "1"},
}
NOT_IN_THIS_PROTOCOL = Outcome("MCP", "-32601")
NOTHING_LIKE_IT = Outcome("MCP", "-32602")
NO_SUCH_PROMPT = Outcome("MCP", "0")
NO_TABLES = Outcome("MCP", "NOTHING_READABLE")


@dataclass(frozen=True)
class McpRow:
    others: Outcome = kinds.OK
    """What those hear who call for a step of their own, and whose groups read no table."""
    params: Callable[[CellHarness], Mapping[str, Any]] = lambda _: {}
    shows: bool = False
    """Whether ada hears of what is hers."""
    own_code: str = "OK"

    @property
    def kind(self) -> Kind:
        """For steps of this audience; a static key is one of a group that reads no table."""
        return Kind(
            "step",
            {
                "anonymous": {kinds.NOTHING: kinds.MISSING, kinds.FORGED_STEP: kinds.BAD_RUN_TOKEN},
                **{
                    caller: {
                        kinds.SESSION: kinds.BAD_KEY,
                        kinds.OWN_STEP: self.others,
                        kinds.OWN_CALL: kinds.BAD_RUN_TOKEN,
                    }
                    for caller in OTHERS
                },
                "run token": {
                    kinds.STEP_FOR_ANOTHER: kinds.BAD_RUN_TOKEN,
                    kinds.STEP_AS_BEARER: kinds.BAD_KEY,
                },
                "expired": {
                    kinds.EXPIRED_STEP: kinds.RUN_TOKEN_OVER,
                    kinds.EXPIRED_SESSION: kinds.BAD_KEY,
                    kinds.EXPIRED_KEY: kinds.BAD_KEY,
                },
                "revoked": {
                    kinds.ENDED_STEP: kinds.STEP_OVER,
                    kinds.ENDED_SESSION: kinds.BAD_KEY,
                    kinds.REVOKED_KEY: kinds.BAD_KEY,
                },
                "API key without scope": {kinds.KEY: kinds.BAD_KEY, kinds.STATIC_KEY: self.others},
            },
        )


def _tool(name: str, **arguments: Any) -> McpRow:
    params = {"name": name, "arguments": arguments}
    return McpRow(NO_TABLES, lambda _: params, shows=True)


MCP_ROWS: Mapping[str, McpRow] = {
    "initialize": McpRow(params=lambda _: _PROTOCOL),
    "ping": McpRow(),
    "tools/list": McpRow(),
    f"{_CALL} mcp_db_query": _tool("mcp_db_query", query=f"SELECT name FROM {TABLE}"),
    f"{_CALL} mcp_db_schema": _tool("mcp_db_schema", database="main", tables=[TABLE]),
    "resources/list": McpRow(),
    "resources/templates/list": McpRow(),
    "resources/read": McpRow(
        NOTHING_LIKE_IT, lambda _: {"uri": f"file:///{TABLE}"}, own_code="MCP"
    ),
    "prompts/list": McpRow(),
    "prompts/get": McpRow(NO_SUCH_PROMPT, lambda _: {"name": TABLE}, own_code="MCP"),
    "server/discover": McpRow(NOT_IN_THIS_PROTOCOL, own_code="MCP"),
    "subscriptions/listen": McpRow(NOT_IN_THIS_PROTOCOL, own_code="MCP"),
    "a/method/that/there/is/not": McpRow(NOT_IN_THIS_PROTOCOL, own_code="MCP"),
}
"""What mcp_db answers, by method; tools with their names."""


def built_methods() -> set[str]:
    """Methods that the server answers, but for tools; those of the library's own too."""
    made: Any = build_server(_no_tools())
    return {"initialize", *made._lowlevel_server._request_handlers} - {_CALL}


def built_paths() -> set[str]:
    app: Any = build_app(build_server(_no_tools()), host="127.0.0.1", auth=None)
    return {route.path for route in app.routes}


def _no_tools() -> Tools:
    return Tools(MagicMock(), MagicMock(), MagicMock(), MagicMock())


async def offered_rows(harness: CellHarness) -> set[str]:
    """What the running server lists of itself, as rows are called."""
    found = set[str]()
    for kind, method in (
        ("tools", "tools/list"),
        ("resources", "resources/list"),
        ("resourceTemplates", "resources/templates/list"),
        ("prompts", "prompts/list"),
    ):
        heard = await call_mcp(harness, harness.step_token("ada", ["mcp_db"]), method, {})
        assert heard.code == "OK", heard
        listed = json.loads(heard.body)["result"][kind]
        how = _CALL if kind == "tools" else f"{kind} of"
        found |= {f"{how} {each['name']}" for each in listed}
    return found


async def call_mcp(
    harness: CellHarness, metadata: Metadata, name: str, params: Mapping[str, Any]
) -> Heard:
    """One request that stands alone; its code is ``MCP`` where the protocol or a tool says no."""
    body = {"jsonrpc": "2.0", "id": 1, "method": name.partition(" ")[0], "params": params}
    http: aiohttp.ClientSession = harness.services.http
    url = harness.mcp_url + MCP_PATH
    heard = await call_http(http, "POST", url, metadata, body, accept=_ACCEPT)
    if heard.code != "OK":
        return heard
    content = heard.body.partition("data:")[2]
    answer = json.loads(content)
    if "error" in answer:
        return Heard("MCP", str(answer["error"]["code"]), heard.text, content)
    result = answer["result"]
    if result.get("isError"):
        reason = result.get("structuredContent", {}).get("error", {}).get("reason", "")
        return Heard("MCP", reason, heard.text, content)
    return Heard("OK", "", heard.text, content)
