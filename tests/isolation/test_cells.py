"""Each RPC and route, called by each kind of caller on what is ada's, and then by her.

The columns are in ``cell_kinds``, the rows in ``cell_rows`` and ``cell_routes``. What is missing
fails, and so does what there is no more.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import pytest
from google.protobuf.message import Message

from bos_chassis.auth.scopes import SCOPE_OF

from .cell_calls import Heard, Metadata, call_grpc, call_http, call_silently, ways
from .cell_harness import AGENTS, INSIDE, CellHarness, Target
from .cell_kinds import CALLERS, NO_ROLE, NOT_FOUND, OK, OPEN, SESSION, Outcome
from .cell_mcp import (
    MCP_ROWS,
    OPEN_AT_MCP,
    PATHS_AT_MCP,
    VERBS,
    built_methods,
    built_paths,
    call_mcp,
    offered_rows,
)
from .cell_reads import what_ada_reads
from .cell_routes import (
    LINK_OF_CALLER,
    OF_BROWSERS,
    OPEN_AT_REST,
    RPC_OF_PATH,
    body_of_path,
    own_paths,
)
from .cell_rows import NOT_SERVED, ROWS, Row
from .public_rpcs import PublicRpc, all_rpcs

pytestmark = [
    pytest.mark.isolation,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(900),
]

RPCS = {rpc.path.removeprefix("/"): rpc for rpc in all_rpcs()}


@pytest.mark.requirement("A-21")
async def test_every_route_of_rest_has_a_row_and_every_row_a_route(harness: CellHarness) -> None:
    bound = {f"{each.verb} {each.template}" for rpc in RPCS.values() for each in rpc.bindings}
    document = await call_http(
        harness.services.http, "GET", f"{harness.services.rest_url}/openapi.json", ()
    )
    paths = json.loads(document.body)["paths"]
    found = {
        f"{verb.upper()} {path}" for path, operations in paths.items() for verb in operations
    } | own_paths()
    known = bound | {*OPEN_AT_REST, *RPC_OF_PATH, *OF_BROWSERS, LINK_OF_CALLER}
    assert not found - known, (
        f"{sorted(found - known)}: add what is open to everybody to OPEN_AT_REST, what calls an "
        "RPC to RPC_OF_PATH and body_of_path, in tests/isolation/cell_routes.py."
    )
    assert not known - found, f"{sorted(known - found)}: REST has no such path (any more)."


async def test_servers_offer_nothing_that_has_no_row(harness: CellHarness) -> None:
    rpc = RPCS["grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"]
    rows = {name.partition("/")[0] for name in ROWS}
    for name, target in harness.targets.items():
        heard = await call_grpc(target.channel, rpc, rpc.message(list_services="*"), ())
        offered = {
            line.split('"')[1]
            for line in heard.text.splitlines()
            if line.strip().startswith("name:")
        }
        assert "grpc.health.v1.Health" in offered, name
        assert offered <= rows, f"{name} offers a service without rows in cell_rows.py"


async def test_unserved_methods_are_refused_for_all_callers(harness: CellHarness) -> None:
    (name,) = NOT_SERVED
    rpc = RPCS[name]
    for target in harness.targets.values():
        for caller, cells in OPEN.cells.items():
            for label in cells:
                credential = harness.credential(caller, label, target, "")
                heard = await call_grpc(target.channel, rpc, rpc.message(), credential)
                refusals = ("UNAUTHENTICATED", "PERMISSION_DENIED", "UNIMPLEMENTED")
                assert heard.code in refusals, (caller, label, target.name, heard)
                assert harness.traces(heard.text, "") == [], (caller, label, target.name)


@pytest.mark.parametrize("name", [name for name in ROWS if name in RPCS])
@pytest.mark.requirement("R-08")
async def test_row(name: str, harness: CellHarness) -> None:
    """All other callers at once, with no change; then the owner is answered."""
    rpc, row = RPCS[name], ROWS[name]
    before = await what_ada_reads(harness)
    wrong: list[str] = []
    async with asyncio.TaskGroup() as tasks:
        for target in targets_of(rpc, row, harness):
            for caller, cells in row.kind.cells.items():
                for label, outcome in cells.items():
                    credential = harness.credential(caller, label, target, SCOPE_OF.get(name, ""))
                    where = f"{caller} with {label} at {target.name}"
                    tasks.create_task(
                        _cell(harness, (rpc, row, target), credential, outcome, where, wrong)
                    )
    if row.kind.cells["other user"].get(SESSION) in (NOT_FOUND, NO_ROLE):
        wrong += [
            f"the error shows whether there is one, {way}"
            for target in targets_of(rpc, row, harness)
            for way in await _unlike_missing(harness, rpc, row, target)
        ]
    assert not wrong, "\n".join(wrong)
    assert await what_ada_reads(harness) == before
    for target in targets_of(rpc, row, harness):
        await _owner_is_answered(harness, rpc, row, target)


async def _cell(
    harness: CellHarness,
    called: tuple[PublicRpc, Row, Target],
    credential: Metadata,
    outcome: Outcome,
    where: str,
    wrong: list[str],
) -> None:
    rpc, row, target = called
    message = built(rpc, row.request(harness))
    for way, heard in (await _all_ways(harness, rpc, target, message, credential, outcome)).items():
        expected = (outcome.code, outcome.reason)
        if way.startswith("REST") and credential and credential[0][0] != "authorization":
            # The endpoint looks at one header alone.
            expected = ("UNAUTHENTICATED", "CREDENTIAL_MISSING")
            if row.kind.owner == "no user":
                expected = (outcome.code, outcome.reason)
        if heard.outcome != expected:
            wrong.append(f"{where}, {way}: {heard.outcome}, not {expected}: {heard.text[:400]}")
        elif outcome.hides and (
            seen := set(harness.traces(heard.text, str(message)))
            - (harness.ids if outcome.ids else set())
        ):
            wrong.append(f"{where}, {way}: hears of {seen}: {heard.text[:400]}")


async def _unlike_missing(
    harness: CellHarness, rpc: PublicRpc, row: Row, target: Target
) -> list[str]:
    """Ways in which another user hears something else than of ids that do not exist."""
    asked = row.request(harness)
    if isinstance(asked, Message):
        return []
    known = {*harness.things.values(), harness.people["ada"].user_id}
    made_up = {
        name: str(uuid4()) if isinstance(value, str) and value in known else value
        for name, value in asked.items()
    }
    credential = harness.credential("other user", SESSION, target, "")
    there, missing = [
        await ways(harness.services, target.channel, rpc, built(rpc, fields), credential)
        for fields in (asked, made_up)
    ]
    return [way for way, heard in there.items() if heard.shape != missing[way].shape]


async def _all_ways(
    harness: CellHarness,
    rpc: PublicRpc,
    target: Target,
    message: Message,
    credential: Metadata,
    outcome: Outcome,
) -> Mapping[str, Heard]:
    """Also without a message, where headers decide, and by the paths that are no bindings."""
    services = harness.services
    heard = await ways(services, target.channel, rpc, message, credential)
    if outcome.at_headers and not rpc.open:
        heard["gRPC without a message"] = await call_silently(target.channel, rpc.path, credential)
    for route, called in RPC_OF_PATH.items():
        if f"/{called}" == rpc.path:
            verb, _, path = route.partition(" ")
            body, url = body_of_path(route, harness), services.rest_url + path
            heard[f"REST {route}"] = await call_http(services.http, verb, url, credential, body)
    return heard


async def _owner_is_answered(
    harness: CellHarness, rpc: PublicRpc, row: Row, target: Target
) -> None:
    """The very same call by whose right it is; what changes something once, over gRPC."""
    message = built(rpc, (row.own or row.request)(harness))
    credential = harness.rightful(row.who, target, SCOPE_OF.get(rpc.path.removeprefix("/"), ""))
    heard: Mapping[str, Heard]
    if rpc.reads:
        heard = await ways(harness.services, target.channel, rpc, message, credential)
    else:
        heard = {"gRPC": await call_grpc(target.channel, rpc, message, credential)}
    if row.ends:
        harness.ended.add(harness.things[row.ends])
    for way, answer in heard.items():
        assert answer.code == row.own_code, (way, answer)
        if row.shows:
            assert harness.traces(answer.text, str(message)), (way, answer)


async def test_what_mcp_db_offers_has_rows_and_every_row_is_offered(harness: CellHarness) -> None:
    offered = built_methods() | await offered_rows(harness)
    known = MCP_ROWS.keys() - {"a/method/that/there/is/not"}
    missing, gone = sorted(offered - known), sorted(known - offered)
    assert not missing, f"{missing}: add each to MCP_ROWS in tests/isolation/cell_mcp.py."
    assert not gone, f"{gone}: mcp_db offers it no more; take its row out of MCP_ROWS."
    paths = built_paths()
    assert paths == {"/mcp", *OPEN_AT_MCP}, "a path of mcp_db without a row in cell_mcp.py"


@pytest.mark.parametrize("name", MCP_ROWS)
async def test_row_of_mcp_db(name: str, harness: CellHarness) -> None:
    """All other callers at once; then a step of ada's, whose group reads the table."""
    row, target = MCP_ROWS[name], _mcp_db(harness)
    assert tuple(row.kind.cells) == CALLERS
    params = row.params(harness)
    wrong: list[str] = []

    async def cell(caller: str, label: str, outcome: Outcome) -> None:
        heard = await call_mcp(harness, harness.credential(caller, label, target, ""), name, params)
        if heard.outcome != (outcome.code, outcome.reason):
            wrong.append(f"{caller} with {label}: {heard.outcome}, not {outcome}: {heard.text}")
        elif seen := harness.traces(heard.text, ""):
            wrong.append(f"{caller} with {label}: hears of {seen}: {heard.text}")

    async with asyncio.TaskGroup() as tasks:
        for caller, cells in row.kind.cells.items():
            for label, outcome in cells.items():
                tasks.create_task(cell(caller, label, outcome))
    assert not wrong, "\n".join(wrong)
    heard = await call_mcp(harness, harness.rightful("step", target), name, params)
    assert heard.code == row.own_code, heard
    assert bool(harness.traces(heard.text, "")) == row.shows, heard


async def test_paths_of_mcp_db_require_a_token(harness: CellHarness) -> None:
    target, cells = _mcp_db(harness), MCP_ROWS["ping"].kind.cells
    wrong = []
    for caller, labels in cells.items():
        for label, outcome in labels.items():
            credential = harness.credential(caller, label, target, "")
            # The token decides before path and verb do: each path and each verb once.
            asked = [*((path, "POST") for path in PATHS_AT_MCP), *(("/mcp", v) for v in VERBS)]
            for path, verb in asked if outcome is not OK else ():
                url = harness.mcp_url + path
                heard = await call_http(harness.services.http, verb, url, credential)
                if heard.outcome != (outcome.code, outcome.reason):
                    wrong.append((verb, path, caller, label, heard.outcome))
    assert not wrong


def _mcp_db(harness: CellHarness) -> Target:
    return Target("mcp_db", harness.targets["gateway"].channel)


async def test_open_paths_show_all_callers_the_same(harness: CellHarness) -> None:
    """Metrics have no authentication, so they are on loopback by default."""
    for path in OPEN_AT_MCP:
        await _same_for_all(harness, "GET", harness.mcp_url + path)
    for route in OPEN_AT_REST:
        verb, _, path = route.partition(" ")
        await _same_for_all(harness, verb, harness.services.rest_url + path)
    assert harness.metrics.keys() == {*AGENTS, *INSIDE, *harness.services.metrics}
    for url in harness.metrics.values():
        assert "# HELP" in (await _same_for_all(harness, "GET", url)).text, url


async def test_browser_sessions_and_links_require_their_headers(harness: CellHarness) -> None:
    for route in (*OF_BROWSERS, LINK_OF_CALLER):
        verb, _, path = route.partition(" ")
        url = harness.services.rest_url + path
        heard = await call_http(harness.services.http, verb, url, (), {})
        expected = ("PERMISSION_DENIED", "CSRF_HEADER_MISSING")
        if route == LINK_OF_CALLER:
            expected = ("UNAUTHENTICATED", "CREDENTIAL_MISSING")
        assert heard.outcome == expected, route


async def _same_for_all(harness: CellHarness, verb: str, url: str) -> Heard:
    target, kind = harness.targets["gateway"], OPEN
    for caller, cells in kind.cells.items():
        for label in cells:
            credential = harness.credential(caller, label, target, "")
            heard = await call_http(harness.services.http, verb, url, credential)
            assert heard.code == "OK", (url, caller, label, heard)
            assert harness.traces(heard.text, "") == [], (url, caller, label)
    return heard


def built(rpc: PublicRpc, request: Message | Mapping[str, Any]) -> Message:
    return request if isinstance(request, Message) else rpc.message(**request)


def targets_of(rpc: PublicRpc, row: Row, harness: CellHarness) -> list[Target]:
    names = row.targets or (rpc.service.split(".")[1],)
    return [each for each in harness.targets.values() if names == ("*",) or each.name in names]
