from collections.abc import Callable
from typing import Any

import pytest

from bos_http import HttpRefused, Rule
from bos_testkit.internet.urls import INWARD

pytestmark = pytest.mark.security

OTHER = "151.101.1.69"


def pointing(reply: Any, location: str, status: str = "302 Found") -> Callable[[Any], bytes]:
    return lambda _: reply(status, b"moved", Location=location)


@pytest.mark.parametrize(("location", "rule"), INWARD, ids=lambda v: ascii(v)[:60])
async def test_every_hop_is_checked_like_the_first_url(
    internet: Any, reply: Any, location: str, rule: str | None
) -> None:
    canary = await internet.site()
    place = location.replace("{port}", str(canary.port))
    site = await internet.site(
        lambda r: reply("302 Found", Location=place) if r.path == "/start" else reply("200 OK"),
        names=["example.com"],
    )
    internet.names.table["inside.example"] = ["127.0.0.1"]
    internet.names.table["erp.corp"] = ["127.0.0.1"]
    client = await internet.client(
        ports=(80, canary.port),
        internal_origins={f"http://erp.corp:{canary.port}": ["127.0.0.1/32"]},
    )
    if rule is None:
        assert (await client.request("GET", "http://example.com/start")).ok
    else:
        assert await internet.refusal(client.request("GET", "http://example.com/start")) == rule
    assert canary.connections == 0
    assert {address for address, _ in internet.dialled} == {"93.184.215.14"}
    assert site.requests[0].path == "/start"


async def test_the_last_hop_of_a_long_chain_is_checked_too(internet: Any, reply: Any) -> None:
    canary = await internet.site()
    hops = ["http://b.example/", "http://a.example/2", f"http://127.0.0.1:{canary.port}/"]

    def respond(request: Any) -> bytes:
        return reply("302 Found", Location=hops[len(site.requests) - 1])

    site = await internet.site(respond, names=["a.example", "b.example"])
    client = await internet.client(ports=(80, canary.port))
    assert (
        await internet.refusal(client.request("GET", "http://a.example/")) is Rule.ADDRESS_LOOPBACK
    )
    assert len(site.requests) == 3
    assert canary.connections == 0


async def test_a_loop_ends_at_the_limit(internet: Any, reply: Any) -> None:
    site = await internet.site(pointing(reply, "/again"), names=["example.com"])
    client = await internet.client(max_redirects=3)
    assert (
        await internet.refusal(client.request("GET", "http://example.com/")) is Rule.REDIRECT_LIMIT
    )
    assert len(site.requests) == 4


@pytest.mark.parametrize("allowed", [0, 3])
async def test_as_many_redirects_as_allowed_are_followed(
    internet: Any, reply: Any, allowed: int
) -> None:
    def respond(_: Any) -> bytes:
        done = len(site.requests) == allowed + 1
        return reply("200 OK", b"end") if done else reply("302 Found", Location="next")

    site = await internet.site(respond, names=["example.com"])
    client = await internet.client(max_redirects=allowed)
    assert (await client.request("GET", "http://example.com/a/b?c")).body == b"end"


@pytest.mark.parametrize(
    ("location", "arrives_at"),
    [
        ("/x?y=1", "/x?y=1"),
        ("x", "/a/x"),
        ("../x", "/x"),
        ("//example.com/x", "/x"),
        ("http://example.com/x#f", "/x"),
    ],
)
async def test_relative_locations_are_followed(
    internet: Any, reply: Any, location: str, arrives_at: str
) -> None:
    site = await internet.site(
        lambda r: reply("301 Moved", Location=location) if r.path == "/a/b?c" else reply("200 OK"),
        names=["example.com"],
    )
    client = await internet.client()
    response = await client.request("GET", "http://example.com/a/b?c")
    assert response.final_url == f"http://example.com{arrives_at}"
    assert [r.path for r in site.requests] == ["/a/b?c", arrives_at]


@pytest.mark.parametrize("status", ["300 Choices", "304 Not Modified", "302 Found"])
async def test_a_status_without_a_place_to_go_is_the_response(
    internet: Any, reply: Any, status: str
) -> None:
    headers = {} if status.startswith("302") else {"Location": "http://127.0.0.1/"}
    client = await internet.client_of(lambda _: reply(status, **headers))
    response = await client.request("GET", "http://example.com/")
    assert str(response.status) == status[:3]


async def test_two_different_locations_are_refused(internet: Any) -> None:
    head = b"HTTP/1.1 302 F\r\nLocation: /a\r\nLocation: /b\r\nContent-Length: 0\r\n\r\n"
    client = await internet.client_of(lambda _: head)
    assert (
        await internet.refusal(client.request("GET", "http://example.com/"))
        is Rule.REDIRECT_AMBIGUOUS
    )


async def test_https_never_becomes_http(internet: Any, reply: Any) -> None:
    plain = await internet.site(names=["plain.example"])
    await internet.site(pointing(reply, "http://plain.example/"), tls_names=["example.com"])
    client = await internet.client()
    assert (
        await internet.refusal(client.request("GET", "https://example.com/"))
        is Rule.REDIRECT_DOWNGRADE
    )
    assert plain.connections == 0


SECRETS = {
    "Authorization": "Bearer secret",
    "Cookie": "session=secret",
    "X-Api-Key": "secret",
    "Accept": "application/json",
}


@pytest.mark.parametrize(
    ("location", "same"),
    [
        ("http://other.example/", False),
        ("http://example.com:8080/", False),
        ("https://example.com/", False),
        ("/elsewhere", True),
        ("http://EXAMPLE.com:80/", True),
    ],
)
async def test_credentials_stay_with_their_origin(
    internet: Any, reply: Any, location: str, same: bool
) -> None:
    last = await internet.site(
        address=OTHER, names=["other.example", "sub.example.com"], tls_names=()
    )
    secure = await internet.site(tls_names=["example.com"])
    first = await internet.site(
        lambda r: reply("302 Found", Location=location) if r.path == "/start" else reply("200 OK"),
        names=["example.com"],
    )
    internet.routes["93.184.215.14", 8080] = last.port
    client = await internet.client(ports=(80, 443, 8080))
    await client.request("GET", "http://example.com/start", headers=SECRETS)
    final = [*last.requests, *secure.requests, *first.requests[1:]]
    assert len(final) == 1
    assert final[0].headers["accept"] == "application/json"
    kept = {name for name in ("authorization", "cookie", "x-api-key") if name in final[0].headers}
    assert kept == ({"authorization", "cookie", "x-api-key"} if same else set())


async def test_credentials_do_not_return_after_a_detour(internet: Any, reply: Any) -> None:
    site = await internet.site(
        lambda r: (
            reply("302 Found", Location="http://other.example/")
            if r.path == "/start"
            else reply("200 OK")
        ),
        names=["example.com"],
    )
    await internet.site(
        pointing(reply, "http://example.com/end"), address=OTHER, names=["other.example"]
    )
    client = await internet.client()
    await client.request("GET", "http://example.com/start", headers=SECRETS)
    assert [r.path for r in site.requests] == ["/start", "/end"]
    assert "authorization" not in site.requests[1].headers


@pytest.mark.parametrize("status", ["302 F", "303 S"])
async def test_result_of_post_is_read_with_get(internet: Any, reply: Any, status: str) -> None:
    site = await internet.site(
        lambda r: (
            reply(status, Location="/result") if r.line.startswith("POST") else reply("200 OK")
        ),
        names=["example.com"],
    )
    client = await internet.client()
    await client.request(
        "POST", "http://example.com/", headers={"Content-Type": "text/plain"}, body=b"do"
    )
    assert site.requests[1].line == "GET /result HTTP/1.1"
    assert site.requests[1].body == b""
    assert "content-type" not in site.requests[1].headers


@pytest.mark.parametrize(
    ("method", "status"),
    [("POST", "307 T"), ("PUT", "302 F")],
)
async def test_what_may_change_things_is_never_repeated_elsewhere(
    internet: Any, reply: Any, method: str, status: str
) -> None:
    site = await internet.site(pointing(reply, "/again", status), names=["example.com"])
    client = await internet.client()
    assert (
        await internet.refusal(client.request(method, "http://example.com/", body=b"do"))
        is Rule.REDIRECT_REPEATS_BODY
    )
    assert len(site.requests) == 1


@pytest.mark.parametrize(("method", "status"), [("GET", "308 P"), ("HEAD", "307 T")])
async def test_what_changes_nothing_keeps_its_method(
    internet: Any, reply: Any, method: str, status: str
) -> None:
    site = await internet.site(
        lambda r: reply(status, Location="/b") if " /a " in r.line else reply("200 OK"),
        names=["example.com"],
    )
    client = await internet.client()
    await client.request(method, "http://example.com/a")
    assert site.requests[1].line == f"{method} /b HTTP/1.1"


async def test_redirect_that_is_not_to_be_followed_is_response(internet: Any, reply: Any) -> None:
    """One request at most is sent, and where it leads is not even judged."""
    site = await internet.site(pointing(reply, "http://127.0.0.1/"), names=["example.com"])
    client = await internet.client()
    answer = await client.request("GET", "http://example.com/", follow_redirects=False)
    assert (answer.status, answer.headers["Location"]) == (302, "http://127.0.0.1/")
    assert len(site.requests) == 1
    with pytest.raises(HttpRefused):
        await client.request("GET", "http://example.com/")


async def test_a_url_is_checked_without_a_call(internet: Any) -> None:
    site = await internet.site(names=["example.com"])
    client = await internet.client()
    assert client.check("HTTP://Example.com:80/a b".replace(" ", "%20")).url == (
        "http://example.com/a%20b"
    )
    for url in ("http://127.0.0.1/", "http://example.com:6379/", "file:///etc/passwd"):
        with pytest.raises(HttpRefused):
            client.check(url)
    assert site.requests == []
