"""Hostile URLs. Each is refused with its rule, and no server is contacted.

The client of these tests may call any public host over http and https at the usual ports, and at
those of a canary on loopback.
"""

from typing import Any

import pytest

from bos_http import HttpRefused, Rule
from bos_testkit.internet.urls import HOSTILE_URLS, RESOLVED

pytestmark = pytest.mark.security


@pytest.mark.parametrize(("form", "rule"), HOSTILE_URLS, ids=lambda v: ascii(v)[:60])
async def test_hostile_urls_are_refused_without_a_connection(
    internet: Any, form: str, rule: str
) -> None:
    canary = await internet.site()
    client = await internet.client(ports=(80, 443, canary.port))
    with pytest.raises(HttpRefused) as refused:
        await client.request("GET", form.replace("{port}", str(canary.port)))
    assert refused.value.rule == rule
    assert (internet.dialled, internet.names.asked, canary.connections) == ([], [], 0)


@pytest.mark.parametrize(
    ("addresses", "rule"), [r[1:] for r in RESOLVED], ids=[r[0] for r in RESOLVED]
)
async def test_names_that_lead_inside_are_refused(
    internet: Any, addresses: list[str], rule: str
) -> None:
    canary = await internet.site()
    internet.names.table["127.0.0.1.nip.example"] = addresses
    client = await internet.client(ports=(80, canary.port))
    assert (
        await internet.refusal(
            client.request("GET", f"http://127.0.0.1.nip.example:{canary.port}/")
        )
        == rule
    )
    assert (internet.dialled, canary.connections) == ([], 0)


async def test_changed_address_is_checked_for_every_connection(internet: Any, reply: Any) -> None:
    site = await internet.site(lambda _: reply("200 OK", b"one", Connection="close"))
    internet.names.table["rebind.example"] = [["93.184.215.14"], ["127.0.0.1"]]
    client = await internet.client()
    assert (await client.request("GET", "http://rebind.example/")).body == b"one"
    assert (
        await internet.refusal(client.request("GET", "http://rebind.example/"))
        is Rule.ADDRESS_LOOPBACK
    )
    assert internet.dialled == [("93.184.215.14", 80)]
    assert site.connections == 1


async def test_connection_goes_to_one_resolved_address(internet: Any) -> None:
    site = await internet.site()
    internet.names.table["rebind.example"] = [["93.184.215.14"], ["127.0.0.1"]]
    client = await internet.client()
    for _ in range(3):
        await client.request("GET", "http://rebind.example/")
    assert internet.names.asked == ["rebind.example"]
    assert internet.dialled == [("93.184.215.14", 80)]
    assert {r.headers["host"] for r in site.requests} == {"rebind.example"}


ALLOW_LIST = [
    ("https://example.com.evil.com/", Rule.HOST_NOT_ALLOWED),
    ("https://evil.com/example.com", Rule.HOST_NOT_ALLOWED),
    ("https://notexample.org/", Rule.HOST_NOT_ALLOWED),
    ("https://example.org/", Rule.HOST_NOT_ALLOWED),  # the pattern is *.example.org
    ("https://example.org.evil.com/", Rule.HOST_NOT_ALLOWED),
    ("https://1.1.1.1/", Rule.HOST_NOT_ALLOWED),
    ("https://еxample.com/", Rule.HOST_NOT_ALLOWED),  # Cyrillic
    ("http://example.com/", Rule.SCHEME),
    ("https://example.com:8443/", Rule.PORT),
    ("https://a.example.org@evil.com/", Rule.USERINFO),
]


@pytest.mark.parametrize(("url", "rule"), ALLOW_LIST)
async def test_hosts_that_only_resemble_allowed_ones_are_refused(
    internet: Any, url: str, rule: Rule
) -> None:
    client = await internet.client(hosts=("example.com", "*.example.org"), allow_http=False)
    assert await internet.refusal(client.request("GET", url)) == rule
    assert internet.dialled == []


async def test_nothing_is_allowed_until_it_is_named(internet: Any) -> None:
    client = await internet.client(hosts=())
    assert (
        await internet.refusal(client.request("GET", "https://example.com/"))
        is Rule.HOST_NOT_ALLOWED
    )
