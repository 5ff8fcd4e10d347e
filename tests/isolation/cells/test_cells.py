"""Every RPC and every route, called by every kind of caller on what is ada's, and then by her.

The columns are in ``cell_kinds``, the rows in ``cell_rows`` and ``cell_routes``. What is missing
fails, and so does what there is no more.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from cell_calls import Heard, call_grpc, call_http, call_silently
from cell_estate import AGENTS, Estate, Target, open_estate
from cell_kinds import CALLERS, KINDS, OK, Outcome
from cell_mcp import (
    MCP_ROWS,
    OPEN_AT_MCP,
    PATHS_AT_MCP,
    VERBS,
    built_methods,
    built_paths,
    call_mcp,
    offered_rows,
)
from cell_reads import what_ada_reads
from cell_routes import (
    LINK_OF_CALLER,
    OF_BROWSERS,
    OPEN_AT_REST,
    RPC_OF_PATH,
    body_of_path,
    own_paths,
)
from cell_rows import NOT_SERVED, ROWS, Row
from google.protobuf.message import Message
from public_rpcs import all_rpcs

from bos_chassis.auth.scopes import SCOPE_OF
from bos_postgres import create_database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from cell_calls import Metadata
    from public_rpcs import PublicRpc

    from bos_testkit.postgres import PostgresServer

pytestmark = [
    pytest.mark.isolation,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(900),
]

RPCS = {rpc.path.removeprefix("/"): rpc for rpc in all_rpcs()}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def estate(
    clean_environment: None,
    postgres_server: PostgresServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Estate]:
    dsn = await create_database(postgres_server.dsn(), f"cells_{secrets.token_hex(6)}")
    async with open_estate(dsn, tmp_path_factory.mktemp("cells")) as opened:
        yield opened


@pytest.mark.requirement("A-21")
async def test_every_route_of_rest_has_a_row_and_every_row_a_route(estate: Estate) -> None:
    bound = {f"{each.verb} {each.template}" for rpc in RPCS.values() for each in rpc.bindings}
    document = await call_http(
        estate.harness.http, "GET", f"{estate.harness.rest_url}/openapi.json", ()
    )
    paths = json.loads(document.body)["paths"]
    found = {
        f"{verb.upper()} {path}" for path, operations in paths.items() for verb in operations
    } | own_paths()
    known = bound | {*OPEN_AT_REST, *RPC_OF_PATH, *OF_BROWSERS, LINK_OF_CALLER}
    assert not found - known, (
        f"{sorted(found - known)}: add what is open to everybody to OPEN_AT_REST, what calls an "
        "RPC to RPC_OF_PATH and body_of_path, in tests/isolation/cells/cell_routes.py."
    )
    assert not known - found, f"{sorted(known - found)}: REST has no such path (any more)."


async def test_servers_offer_nothing_that_has_no_row(estate: Estate) -> None:
    rpc = RPCS["grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"]
    rows = {name.partition("/")[0] for name in ROWS}
    for name, target in estate.targets.items():
        heard = await call_grpc(target.channel, rpc, rpc.message(list_services="*"), ())
        offered = {
            line.split('"')[1]
            for line in heard.text.splitlines()
            if line.strip().startswith("name:")
        }
        assert "grpc.health.v1.Health" in offered, name
        assert offered <= rows, f"{name} offers a service without rows in cell_rows.py"


@pytest.mark.parametrize("name", NOT_SERVED)
async def test_unserved_methods_are_refused_for_all_callers(name: str, estate: Estate) -> None:
    rpc = RPCS[name]
    for target in estate.targets.values():
        for caller, cells in KINDS[-1].cells.items():
            for label in cells:
                credential = estate.credential(caller, label, target, "")
                heard = await call_grpc(target.channel, rpc, rpc.message(), credential)
                refusals = ("UNAUTHENTICATED", "PERMISSION_DENIED", "UNIMPLEMENTED")
                assert heard.code in refusals, (caller, label, target.name, heard)
                assert estate.traces(heard.text, "") == [], (caller, label, target.name)


@pytest.mark.parametrize("name", [name for name in ROWS if name in RPCS])
async def test_row(name: str, estate: Estate) -> None:
    """Everybody else calls at once; nothing has changed; then its owner calls, and is answered."""
    rpc, row = RPCS[name], ROWS[name]
    before = await what_ada_reads(estate)
    wrong: list[str] = []
    async with asyncio.TaskGroup() as tasks:
        for target in targets_of(rpc, row, estate):
            for caller, cells in row.kind.cells.items():
                for label, outcome in cells.items():
                    credential = estate.credential(caller, label, target, SCOPE_OF.get(name, ""))
                    where = f"{caller} with {label} at {target.name}"
                    tasks.create_task(
                        _cell(estate, (rpc, row, target), credential, outcome, where, wrong)
                    )
    assert not wrong, "\n".join(wrong)
    assert await what_ada_reads(estate) == before
    for target in targets_of(rpc, row, estate):
        await _owner_is_answered(estate, rpc, row, target)


async def _cell(
    estate: Estate,
    called: tuple[PublicRpc, Row, Target],
    credential: Metadata,
    outcome: Outcome,
    where: str,
    wrong: list[str],
) -> None:
    """One cell, in every way that there is."""
    rpc, row, target = called
    message = built(rpc, row.request(estate))
    for way, heard in (await _ways(estate, rpc, target, message, credential, outcome)).items():
        expected = (outcome.code, outcome.reason)
        if way.startswith("REST") and credential and credential[0][0] != "authorization":
            # The endpoint looks at one header alone.
            expected = ("UNAUTHENTICATED", "CREDENTIAL_MISSING")
            if row.kind.owner == "nobody":
                expected = (outcome.code, outcome.reason)
        if heard.outcome != expected:
            wrong.append(f"{where}, {way}: {heard.outcome}, not {expected}: {heard.text[:400]}")
        elif outcome.hides and (
            seen := set(estate.traces(heard.text, str(message)))
            - (estate.ids if outcome.ids else set())
        ):
            wrong.append(f"{where}, {way}: hears of {seen}: {heard.text[:400]}")


async def _ways(
    estate: Estate,
    rpc: PublicRpc,
    target: Target,
    message: Message,
    credential: Metadata,
    outcome: Outcome | None = None,
) -> Mapping[str, Heard]:
    heard = {"gRPC": await call_grpc(target.channel, rpc, message, credential)}
    if outcome is not None and outcome.at_headers and not rpc.open:
        heard["gRPC without a message"] = await call_silently(target.channel, rpc.path, credential)
    http, url = estate.harness.http, estate.harness.rest_url
    for binding in rpc.bindings:
        verb, path, body = binding.request(message)
        way = f"REST {binding.verb} {binding.template}"
        heard[way] = await call_http(http, verb, url + path, credential, body)
    for route, called in RPC_OF_PATH.items():
        if f"/{called}" == rpc.path and outcome is not None:
            verb, _, path = route.partition(" ")
            body = body_of_path(route, estate)
            heard[f"REST {route}"] = await call_http(http, verb, url + path, credential, body)
    return heard


async def _owner_is_answered(estate: Estate, rpc: PublicRpc, row: Row, target: Target) -> None:
    """The very same call by whose right it is; what changes something once, over gRPC."""
    message = built(rpc, (row.own or row.request)(estate))
    credential = estate.rightful(row.who, target, SCOPE_OF.get(rpc.path.removeprefix("/"), ""))
    heard: Mapping[str, Heard]
    if rpc.reads:
        heard = await _ways(estate, rpc, target, message, credential)
    else:
        heard = {"gRPC": await call_grpc(target.channel, rpc, message, credential)}
    if row.ends:
        estate.ended.add(estate.things[row.ends])
    for way, answer in heard.items():
        assert answer.code == row.own_code, (way, answer)
        if row.shows:
            assert estate.traces(answer.text, str(message)), (way, answer)


async def test_what_mcp_db_offers_has_rows_and_every_row_is_offered(estate: Estate) -> None:
    offered = built_methods() | await offered_rows(estate)
    known = MCP_ROWS.keys() - {"a/method/that/there/is/not"}
    missing, gone = sorted(offered - known), sorted(known - offered)
    assert not missing, f"{missing}: add each to MCP_ROWS in tests/isolation/cells/cell_mcp.py."
    assert not gone, f"{gone}: mcp_db offers it no more; take its row out of MCP_ROWS."
    paths = built_paths()
    assert paths == {"/mcp", *OPEN_AT_MCP}, "a path of mcp_db without a row in cell_mcp.py"


@pytest.mark.parametrize("name", MCP_ROWS)
async def test_row_of_mcp_db(name: str, estate: Estate) -> None:
    """Everybody else calls at once; then a step of ada's, whose group reads the table."""
    row, target = MCP_ROWS[name], _mcp_db(estate)
    assert tuple(row.kind.cells) == CALLERS
    params = row.params(estate)
    wrong: list[str] = []

    async def cell(caller: str, label: str, outcome: Outcome) -> None:
        heard = await call_mcp(estate, estate.credential(caller, label, target, ""), name, params)
        if heard.outcome != (outcome.code, outcome.reason):
            wrong.append(f"{caller} with {label}: {heard.outcome}, not {outcome}: {heard.text}")
        elif seen := estate.traces(heard.text, ""):
            wrong.append(f"{caller} with {label}: hears of {seen}: {heard.text}")

    async with asyncio.TaskGroup() as tasks:
        for caller, cells in row.kind.cells.items():
            for label, outcome in cells.items():
                tasks.create_task(cell(caller, label, outcome))
    assert not wrong, "\n".join(wrong)
    heard = await call_mcp(estate, estate.rightful("step", target), name, params)
    assert heard.code == row.own_code, heard
    assert bool(estate.traces(heard.text, "")) == row.shows, heard


@pytest.mark.parametrize("path", PATHS_AT_MCP)
async def test_paths_of_mcp_db_require_a_token_for_every_verb(path: str, estate: Estate) -> None:
    target, cells = _mcp_db(estate), MCP_ROWS["ping"].kind.cells
    for caller, label, outcome in (
        (caller, label, outcome)
        for caller, labels in cells.items()
        for label, outcome in labels.items()
        if outcome is not OK
    ):
        credential = estate.credential(caller, label, target, "")
        for verb in VERBS:
            heard = await call_http(estate.harness.http, verb, estate.mcp_url + path, credential)
            assert heard.outcome == (outcome.code, outcome.reason), (verb, caller, label, heard)


@pytest.mark.parametrize("path", OPEN_AT_MCP)
async def test_open_paths_of_mcp_db_answer_everybody_and_tell_nothing(
    path: str, estate: Estate
) -> None:
    await _tells_everybody_the_same(estate, "GET", estate.mcp_url + path)


def _mcp_db(estate: Estate) -> Target:
    return Target("mcp_db", estate.targets["gateway"].channel)


@pytest.mark.parametrize("route", OPEN_AT_REST)
async def test_own_paths_of_rest_answer_everybody_and_tell_nothing(
    route: str, estate: Estate
) -> None:
    verb, _, path = route.partition(" ")
    await _tells_everybody_the_same(estate, verb, estate.harness.rest_url + path)


@pytest.mark.parametrize("route", [*OF_BROWSERS, LINK_OF_CALLER])
async def test_sessions_of_browsers_are_for_our_pages_and_links_for_callers_with_a_key(
    route: str, estate: Estate
) -> None:
    verb, _, path = route.partition(" ")
    url = estate.harness.rest_url + path
    heard = await call_http(estate.harness.http, verb, url, (), {})
    expected = ("PERMISSION_DENIED", "CSRF_HEADER_MISSING")
    if route == LINK_OF_CALLER:
        expected = ("UNAUTHENTICATED", "CREDENTIAL_MISSING")
    assert heard.outcome == expected


@pytest.mark.parametrize(
    "service",
    [
        "gateway",
        "identity",
        "memory",
        "documents",
        "files",
        "planner",
        "composer",
        "sandbox",
        "mcp_db",
        *AGENTS,
    ],
)
async def test_metrics_tell_nothing_of_anybody(service: str, estate: Estate) -> None:
    """They have no authentication, so they are on loopback by default."""
    heard = await _tells_everybody_the_same(estate, "GET", estate.metrics[service])
    assert "# HELP" in heard.text


async def _tells_everybody_the_same(estate: Estate, verb: str, url: str) -> Heard:
    target, kind = estate.targets["gateway"], KINDS[-1]
    for caller, cells in kind.cells.items():
        for label in cells:
            credential = estate.credential(caller, label, target, "")
            heard = await call_http(estate.harness.http, verb, url, credential)
            assert heard.code == "OK", (caller, label, heard)
            assert estate.traces(heard.text, "") == [], (caller, label)
    return heard


def built(rpc: PublicRpc, request: Message | Mapping[str, Any]) -> Message:
    return request if isinstance(request, Message) else rpc.message(**request)


def targets_of(rpc: PublicRpc, row: Row, estate: Estate) -> list[Target]:
    names = row.targets or (rpc.service.split(".")[1],)
    return [each for each in estate.targets.values() if names == ("*",) or each.name in names]
