"""Hostile addresses, redirects and bodies through every agent that fetches, over gRPC.

The corpus is that of the HTTP client's own tests; what reaches loopback or a private network here
got past an agent.
"""

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from bos.agent.v1 import AgentExecutionStatus
from bos_testkit.internet.bodies import HEAD, REFUSED, forever
from bos_testkit.internet.urls import HOSTILE_URLS, INWARD, RESOLVED
from bos_testkit.internet.world import PUBLIC, ok
from bos_testkit.postgres import PostgresServer

from .fetching_agents import (
    FETCHERS,
    GMAIL,
    HOST,
    OTHER_HOST,
    SECRETS,
    Fetching,
    moved,
    open_fetching,
)

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.security,
    pytest.mark.timeout(600),
]

FAILED = AgentExecutionStatus.AGENT_EXECUTION_STATUS_FAILED
SUCCEEDED = AgentExecutionStatus.AGENT_EXECUTION_STATUS_SUCCEEDED
BODIES = {
    rule: body
    for _, body, rule in reversed(REFUSED)
    if rule in ("response_body_too_large", "response_compression", "response_encoding")
}
"""The first for each rule; the others are tried on the client, in ``libs/http``."""
TEXT = b"A late delivery of Kestrel costs two percent of the price for each day. " * 5
every_fetcher = pytest.mark.parametrize("agent", FETCHERS)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def started(
    postgres_server: PostgresServer,
    tmp_path_factory: pytest.TempPathFactory,
    clean_environment: None,
) -> AsyncIterator[Fetching]:
    folder = tmp_path_factory.mktemp("fetching")
    async with open_fetching(postgres_server.dsn(), folder) as found:
        yield found


@pytest.fixture
def fetching(started: Fetching) -> Fetching:
    started.internet.dialled.clear()
    started.internet.names.asked.clear()
    for site in (started.site, started.other, started.canary):
        site.requests.clear()
        site.gone.clear()
        site.connections = 0
    started.reply = lambda _: ok(TEXT, Content_Type="text/plain", Connection="close")
    return started


def forms(fetching: Fetching) -> list[str]:
    """One hostile address for each rule of the client, which ``libs/http`` tries on all of them."""
    port = str(fetching.canary.port)
    by_rule = {rule: form for form, rule in reversed(HOSTILE_URLS)}
    return [form.replace("{port}", port) for form in by_rule.values()]


@every_fetcher
async def test_honest_address_is_fetched(agent: str, fetching: Fetching) -> None:
    result = await fetching.fetch(agent, f"http://{HOST}/terms")
    assert result.status == SUCCEEDED, result.error
    assert result.tainted
    assert [each.path for each in fetching.site.requests] == ["/terms"]


@every_fetcher
async def test_hostile_addresses_are_refused_without_a_connection(
    agent: str, fetching: Fetching
) -> None:
    hostile = forms(fetching)
    for form in hostile:
        if any("\ud800" <= char <= "\udfff" for char in form):
            continue  # no text of gRPC
        result = await fetching.fetch(agent, form)
        assert form == "" or result.status == FAILED, form
        assert fetching.reached_inside() == [], form


@every_fetcher
async def test_redirects_inwards_are_not_followed(agent: str, fetching: Fetching) -> None:
    fetching.internet.names.table["inside.example"] = ["127.0.0.1"]
    port = str(fetching.canary.port)
    places = [place.replace("{port}", port) for place, rule in INWARD if rule is not None]
    for place in [*places, *forms(fetching)]:
        wire = place.encode("utf-8", "surrogatepass").decode("latin-1")
        if "\n" in wire or "\r" in wire or "\x00" in wire:
            continue  # more than one header
        fetching.reply = lambda request, place=wire: (
            moved(place) if request.path == "/start" else ok(b"elsewhere", Connection="close")
        )
        await fetching.fetch(agent, f"http://{HOST}/start")
        assert fetching.reached_inside() == [], place
        assert fetching.other.connections == 0


@every_fetcher
async def test_names_that_lead_inside_are_refused(agent: str, fetching: Fetching) -> None:
    for number, addresses in enumerate({rule: each for _, each, rule in RESOLVED}.values()):
        name = f"looks-public-{number}.example"
        fetching.internet.names.table[name] = addresses
        result = await fetching.fetch(agent, f"http://{name}/")
        assert result.status == FAILED, addresses
        assert fetching.reached_inside() == [], addresses
        assert fetching.site.connections == 0, addresses
        assert not any(each in str(result) for each in addresses if each != "localhost")


@every_fetcher
async def test_changing_name_is_checked_for_each_connection(agent: str, fetching: Fetching) -> None:
    name = f"rebind-{agent.replace('_', '-')}.example"
    fetching.internet.names.table[name] = [[PUBLIC], ["127.0.0.1"]]
    first = await fetching.fetch(agent, f"http://{name}/")
    assert first.status == SUCCEEDED, first.error
    # One answer of the name server is checked and connected to: there is nothing between.
    assert fetching.internet.names.asked == [name]
    second = await fetching.fetch(agent, f"http://{name}/")
    assert second.status == FAILED
    assert fetching.reached_inside() == []


async def test_documents_and_their_servers_lead_nowhere_inside(fetching: Fetching) -> None:
    """OpenAPI documents at hostile addresses, and honest ones that name hostile servers."""
    usable = [each for each in forms(fetching) if _is_setting(each)]
    for start in range(0, len(usable), 20):
        chosen = usable[start : start + 20]
        await fetching.documented(
            **{f"api{number}": {"openapi": form} for number, form in enumerate(chosen)}
        )
        assert fetching.reached_inside() == []
    for form in usable:
        document = {
            "openapi": "3.1.0",
            "info": {"title": "Orders", "version": "1"},
            "servers": [{"url": form}],
            "paths": {"/orders": {"get": {"responses": {}}}},
        }
        body = json.dumps(document).encode()
        fetching.reply = lambda _, body=body: ok(
            body, Content_Type="application/json", Connection="close"
        )
        await fetching.documented(orders={"openapi": f"http://{HOST}/openapi.json"})
        result = await fetching.do("api_docs", "call_api_read", path="/orders")
        assert fetching.reached_inside() == [], form
        assert SECRETS["request"] not in str(result)


def _is_setting(form: str) -> bool:
    """Whether an operator could set it as the address of a document."""
    return form.isprintable() and form.startswith("http") and len(form) < 1000


async def test_links_to_further_pages_lead_nowhere_else(fetching: Fetching) -> None:
    for form in forms(fetching):
        page = {"items": [{"a": "b"}], "next": form.encode("utf-8", "replace").decode()}
        body = json.dumps(page).encode()
        fetching.reply = lambda request, body=body: (
            ok(body, Content_Type="application/json", Connection="close")
            if request.path == "/list"
            else ok(b"[]", Content_Type="application/json", Connection="close")
        )
        result = await fetching.fetch("api_docs", f"http://{HOST}/list")
        assert result.status == SUCCEEDED, form
        assert fetching.reached_inside() == [], form
        assert fetching.other.connections == 0


async def test_mail_servers_at_hostile_hosts_are_not_connected_to(fetching: Fetching) -> None:
    hosts = {found[1] for form in forms(fetching) if (found := _HOST.match(form)) and found[1]}
    for number, (_, addresses, _) in enumerate(RESOLVED):
        name = f"mail-{number}.example"
        fetching.internet.names.table[name] = addresses
        hosts.add(name)
    hosts -= {"example.com"}
    for host in sorted(hosts):
        if not host.isascii() or not host.isprintable():
            continue
        result = await fetching.open_mailbox(imap_host=host, imap_port="993")
        assert result.status == FAILED, host
        assert fetching.reached_inside() == [], host


_HOST = re.compile(r"[a-z]+://(?:[^/@]*@)?(\[[^\]]*\]|[^/:?#\\]*)")


async def test_changing_mail_server_is_checked_each_time(
    fetching: Fetching,
) -> None:
    fetching.internet.names.table["rebind-mail.example"] = [[PUBLIC], ["127.0.0.1"]]
    await fetching.open_mailbox(imap_host="rebind-mail.example", imap_port="993")
    assert (PUBLIC, 993) in fetching.internet.dialled
    second = await fetching.open_mailbox(imap_host="rebind-mail.example", imap_port="993")
    assert "may not be called" in second.error.message
    assert fetching.reached_inside() == []


async def test_results_of_a_search_lead_nowhere_inside(fetching: Fetching) -> None:
    await fetching.searching()
    for form in forms(fetching):
        url = form.encode("utf-8", "replace").decode()
        found = {"title": "Terms", "content": "Kestrel", "score": 0.9, "url": url}
        body = json.dumps({"results": [found]}).encode()
        fetching.reply = lambda _, body=body: ok(
            body, Content_Type="application/json", Connection="close"
        )
        await fetching.do("searching", "web_search_deep", query="Kestrel")
        assert _beside(fetching) == [], form
    assert len(fetching.site.requests) == len(forms(fetching))


def _beside(fetching: Fetching) -> list[Any]:
    """What was reached beside the API at loopback that the operator has named."""
    return [*fetching.reached_inside(), *fetching.other.requests]


async def test_search_key_stays_with_its_api(
    fetching: Fetching,
) -> None:
    await fetching.searching()
    fetching.reply = lambda _: moved(f"http://{OTHER_HOST}/search")
    result = await fetching.do("searching", "web_search", query="Kestrel")
    assert result.error.type == "SearchRefused"
    (asked,) = fetching.site.requests
    assert SECRETS["operator"] in f"{asked.headers}{asked.body!r}"
    assert _beside(fetching) == []
    fetching.reply = lambda _: forever(HEAD + b"\r\n", b"x" * 65536)
    result = await fetching.do("searching", "web_search", query="Kestrel")
    assert result.error.type == "SearchRefused"


@pytest.mark.parametrize("moving", ["/token", "/gmail"])
async def test_credentials_of_gmail_stay_with_its_api(moving: str, fetching: Fetching) -> None:
    await fetching.with_gmail()
    token = json.dumps({"access_token": "access-token-of-ada", "expires_in": 3600}).encode()
    fetching.reply = lambda request: (
        moved(f"http://{OTHER_HOST}/x")
        if request.path.startswith(moving)
        else ok(token, Content_Type="application/json")
    )
    result = await fetching.search_gmail()
    assert result.status == FAILED
    last = fetching.site.requests[-1]
    assert any(secret in f"{last.headers}{last.body!r}" for secret in (*GMAIL.values(), "access-"))
    assert _beside(fetching) == []
    assert not any(secret in str(result) for secret in GMAIL.values())


@every_fetcher
@pytest.mark.parametrize("same", [True, False], ids=["same origin", "other origin"])
async def test_credentials_stay_with_their_origin(
    agent: str, same: bool, fetching: Fetching
) -> None:
    place = "/end" if same else f"http://{OTHER_HOST}/end"
    fetching.reply = lambda request: (
        moved(place) if request.path.startswith("/start") else ok(TEXT, Content_Type="text/plain")
    )
    await fetching.fetch(agent, f"http://{HOST}/start?api_key=key-in-a-query")
    site = fetching.site if same else fetching.other
    (arrived,) = [each for each in site.requests if each.path == "/end"]
    shown = f"{arrived.line} {arrived.headers} {arrived.body!r}"
    assert "key-in-a-query" not in shown  # no Referer
    secrets = [each for each in SECRETS.values() if each in shown]
    began = str(fetching.site.requests[0].headers)
    sent = [each for each in SECRETS.values() if each in began]
    assert bool(sent) is (agent == "api_docs")
    assert secrets == (sent if same else [])


@every_fetcher
async def test_refused_body_ends_the_request(agent: str, fetching: Fetching) -> None:
    for number, (rule, body) in enumerate(BODIES.items(), 1):
        fetching.reply = lambda _, body=body: body()
        result = await fetching.fetch(agent, f"http://{HOST}/large")
        assert result.status == FAILED, rule
        assert len(fetching.site.requests) == number, rule
        assert result.ByteSize() < 10_000, rule
