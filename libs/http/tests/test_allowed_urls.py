"""Honest URLs pass: the checked address is dialled, and the URL arrives as it was meant."""

from typing import Any

import pytest

from bos_errors import ConfigurationError
from bos_http import Failure, HttpPolicy, Rule

pytestmark = pytest.mark.security

# URL, Host header, path and query as sent
SENT = [
    ("http://example.com", "example.com", "/"),
    ("HTTP://EXAMPLE.COM/Path", "example.com", "/Path"),
    ("http://example.com./", "example.com", "/"),
    ("http://example.com:80/", "example.com", "/"),
    ("http://example.com:8080/x", "example.com:8080", "/x"),
    ("http://example.com?q=1", "example.com", "/?q=1"),
    ("http://example.com/#fragment", "example.com", "/"),
    ("http://my_host.example.com/", "my_host.example.com", "/"),
    ("http://1.2.3.4.example/", "1.2.3.4.example", "/"),
    ("http://localhost.example.com/", "localhost.example.com", "/"),
    ("http://bücher.example/", "xn--bcher-kva.example", "/"),
    ("http://xn--bcher-kva.example/", "xn--bcher-kva.example", "/"),
    ("http://example.com/größe?q=ä", "example.com", "/gr%C3%B6%C3%9Fe?q=%C3%A4"),
    ("http://example.com/a%2Fb%2e%2e", "example.com", "/a%2Fb%2e%2e"),
    ("http://example.com/?q=a%0D%0AX-Evil:%201", "example.com", "/?q=a%0D%0AX-Evil:%201"),
    ("http://example.com/?next=http://127.0.0.1/", "example.com", "/?next=http://127.0.0.1/"),
    ("http://example.com/@user/post", "example.com", "/@user/post"),
    ("http://example.com/?a[]=1|2", "example.com", "/?a%5B%5D=1%7C2"),
    ('http://example.com/{id}?f={"a":1}', "example.com", "/%7Bid%7D?f=%7B%22a%22:1%7D"),
    ("http://93.184.215.14:8080/", "93.184.215.14:8080", "/"),
    ("http://" + "a" * 63 + ".example/", "a" * 63 + ".example", "/"),
    ("http://example.com/" + "a" * 4077, "example.com", "/" + "a" * 4077),
]


@pytest.mark.parametrize(("url", "host", "path"), SENT, ids=lambda v: ascii(v)[:60])
async def test_honest_urls_arrive_as_meant(internet: Any, url: str, host: str, path: str) -> None:
    site = await internet.site(names=[host.partition(":")[0]])
    internet.routes["93.184.215.14", 8080] = site.port
    client = await internet.client(ports=(80, 8080))
    response = await client.request("GET", url)
    assert (response.status, response.body) == (200, b"hello")
    (request,) = site.requests
    assert (request.headers["host"], request.path) == (host, path)
    assert response.final_url == f"http://{host}{path}"
    assert [address for address, _ in internet.dialled] == ["93.184.215.14"]


PUBLIC_ADDRESSES = [
    *("9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0"),
    *("126.255.255.255", "128.0.0.0", "169.253.255.255", "169.255.0.0", "172.15.255.255"),
    *("172.32.0.0", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0"),
    *("223.255.255.255", "2606:4700:4700::1111"),
    *("2001:200::1", "2003::1", "2001:db7:ffff::1", "2001:db9::1", "3ffe:ffff::1"),
]


@pytest.mark.parametrize("address", PUBLIC_ADDRESSES)
async def test_public_address_next_to_a_special_network_is_dialled(
    internet: Any, address: str
) -> None:
    internet.names.table["example.com"] = [address]
    client = await internet.client()
    literal = f"[{address}]" if ":" in address else address
    for host in ("example.com", literal):
        assert await internet.refusal(client.request("GET", f"http://{host}/")) is Failure.CONNECT
    assert internet.dialled == [(address, 80)] * 2


@pytest.mark.parametrize(
    "url", ["https://example.com/", "https://a.example.org/", "https://a.b.example.org:443/"]
)
async def test_named_hosts_and_hosts_below_named_domains_are_allowed(
    internet: Any, url: str
) -> None:
    site = await internet.site(tls_names=["example.com", "a.example.org", "a.b.example.org"])
    client = await internet.client(hosts=("Example.com.", "*.example.org"), allow_http=False)
    assert (await client.request("GET", url)).ok
    assert site.sni == [url.split("/")[2].partition(":")[0]]


@pytest.mark.parametrize("host", ["erp", "127.0.0.1"])
async def test_internal_origin_is_allowed_within_its_networks(internet: Any, host: str) -> None:
    site = await internet.site()
    internet.names.table["erp"] = ["127.0.0.1"]
    origin = f"http://{host}:{site.port}"
    client = await internet.client(hosts=(), internal_origins={origin: ["127.0.0.1/32"]})
    assert (await client.request("GET", origin + "/orders")).ok
    assert internet.dialled == [("127.0.0.1", site.port)]


@pytest.mark.parametrize(
    ("addresses", "rule"),
    [
        (["10.2.0.1"], Rule.ADDRESS_PRIVATE),  # a neighbour of its network
        (["10.1.0.1", "10.2.0.1"], Rule.ADDRESS_PRIVATE),
        (["93.184.215.14"], Rule.ADDRESS_NOT_ALLOWED),  # an internal name that leads outside
        (["127.0.0.1"], Rule.ADDRESS_LOOPBACK),
    ],
)
async def test_an_internal_origin_is_refused_outside_its_networks(
    internet: Any, addresses: list[str], rule: Rule
) -> None:
    internet.names.table["erp.corp"] = addresses
    client = await internet.client(internal_origins={"http://erp.corp:8080": ["10.1.0.0/16"]})
    assert await internet.refusal(client.request("GET", "http://erp.corp:8080/")) is rule
    assert internet.dialled == []


@pytest.mark.parametrize(
    "url", ["http://erp.corp/", "https://erp.corp:8080/", "http://erp.corp:8081/"]
)
async def test_internal_origin_opens_no_other_port_or_scheme(internet: Any, url: str) -> None:
    client = await internet.client(internal_origins={"http://erp.corp:8080": ["10.0.0.0/8"]})
    assert await internet.refusal(client.request("GET", url)) is Rule.HOST_INTERNAL


async def test_networks_of_internal_origin_are_closed_to_other_names(internet: Any) -> None:
    internet.names.table["attacker.example"] = ["10.1.0.1"]
    client = await internet.client(internal_origins={"http://erp.corp:80": ["10.1.0.0/16"]})
    assert (
        await internet.refusal(client.request("GET", "http://attacker.example/"))
        is Rule.ADDRESS_PRIVATE
    )


@pytest.mark.parametrize(
    ("network", "address"),
    [
        ("169.254.0.0/16", "169.254.169.254"),
        ("0.0.0.0/0", "168.63.129.16"),
        ("fd00::/8", "fd00:ec2::254"),
        ("::/0", "::ffff:169.254.169.254"),
        ("64:ff9b::/96", "64:ff9b::a9fe:a9fe"),
    ],
)
async def test_no_setting_opens_cloud_metadata(internet: Any, network: str, address: str) -> None:
    internet.names.table["erp.corp"] = [address]
    client = await internet.client(internal_origins={"http://erp.corp": [network]})
    assert (
        await internet.refusal(client.request("GET", "http://erp.corp/")) is Rule.ADDRESS_METADATA
    )
    assert internet.dialled == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"hosts": ["https://example.com"]},
        {"hosts": ["*example.com"]},
        {"hosts": ["127.1"]},
        {"internal_origins": {"erp:8080": ["10.0.0.0/8"]}},
        {"internal_origins": {"http://erp/path": ["10.0.0.0/8"]}},
        {"internal_origins": {"http://erp": ["10.0.0.1/8"]}},
        {"ports": [0]},
        {"methods": ["CONNECT"]},
        {"total_timeout_s": 0},
        {"user_agent": "a\r\nb"},
    ],
    ids=str,
)
def test_a_policy_that_means_nothing_does_not_load(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=f"BOS_HTTP_{next(iter(wrong)).upper()}"):
        HttpPolicy.load(**wrong)


def test_a_policy_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOS_HTTP_HOSTS", '["Example.com.", "*.Example.org"]')
    monkeypatch.setenv("BOS_HTTP_INTERNAL_ORIGINS", '{"HTTP://ERP:80/": ["10.0.0.0/8"]}')
    policy = HttpPolicy.load()
    assert policy.hosts == ("example.com", "*.example.org")
    assert list(policy.internal_origins) == ["http://erp"]
