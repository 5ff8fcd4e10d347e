"""Hostile URLs. Each is refused with its rule, and no server is contacted.

The client of these tests may call any public host over http and https at the usual ports, and at
those of a canary on loopback.
"""

from __future__ import annotations

from typing import Any

import pytest

from bos_http import HttpRefused, Rule

pytestmark = pytest.mark.security

LOOPBACK_FORMS = [
    ("http://127.0.0.1:{port}/", Rule.ADDRESS_LOOPBACK),
    ("http://127.0.0.1/", Rule.ADDRESS_LOOPBACK),
    ("http://127.8.9.10/", Rule.ADDRESS_LOOPBACK),
    ("http://localhost:{port}/", Rule.HOST_INTERNAL),
    ("http://LOCALHOST:{port}/", Rule.HOST_INTERNAL),
    ("http://localhost.:{port}/", Rule.HOST_INTERNAL),
    ("http://foo.localhost:{port}/", Rule.HOST_INTERNAL),
    ("http://localhost.localdomain/", Rule.HOST_INTERNAL),
    ("http://0.0.0.0:{port}/", Rule.ADDRESS_UNSPECIFIED),
    ("http://0.1.2.3/", Rule.ADDRESS_UNSPECIFIED),
]
NUMBER_FORMS = [
    ("http://2130706433:{port}/", Rule.HOST_AMBIGUOUS),
    ("http://0x7f000001:{port}/", Rule.HOST_AMBIGUOUS),
    ("http://0x7F000001/", Rule.HOST_AMBIGUOUS),
    ("http://017700000001:{port}/", Rule.HOST_AMBIGUOUS),
    ("http://0177.0.0.1:{port}/", Rule.HOST_AMBIGUOUS),
    ("http://0177.0000.0000.0001/", Rule.HOST_AMBIGUOUS),
    ("http://0x7f.0.0.1:{port}/", Rule.HOST_AMBIGUOUS),
    ("http://0x7f.0x0.0x0.0x1/", Rule.HOST_AMBIGUOUS),
    ("http://127.0.0.0x1/", Rule.HOST_AMBIGUOUS),
    ("http://127.1:{port}/", Rule.HOST_AMBIGUOUS),
    ("http://127.0.1:{port}/", Rule.HOST_AMBIGUOUS),
    ("http://127.0.0.01/", Rule.HOST_AMBIGUOUS),
    ("http://0:{port}/", Rule.HOST_AMBIGUOUS),
    ("http://0x/", Rule.HOST_AMBIGUOUS),
    ("http://127.0.0.1.:{port}/", Rule.HOST_AMBIGUOUS),
    ("http://127.0.0.256/", Rule.HOST_AMBIGUOUS),
    ("http://127.0.0.1.1/", Rule.HOST_AMBIGUOUS),
    ("http://4294967296/", Rule.HOST_AMBIGUOUS),
    ("http://2852039166/latest/meta-data/", Rule.HOST_AMBIGUOUS),
    ("http://0xA9FEA9FE/", Rule.HOST_AMBIGUOUS),
    ("http://169.254.43518/", Rule.HOST_AMBIGUOUS),
    ("http://0251.0376.0251.0376/", Rule.HOST_AMBIGUOUS),
    ("http://example.com.1/", Rule.HOST_AMBIGUOUS),
]
IPV6_FORMS = [
    ("http://[::1]:{port}/", Rule.ADDRESS_LOOPBACK),
    ("http://[0:0:0:0:0:0:0:1]/", Rule.ADDRESS_LOOPBACK),
    ("http://[0000::0001]/", Rule.ADDRESS_LOOPBACK),
    ("http://[::]:{port}/", Rule.ADDRESS_UNSPECIFIED),
    ("http://[::ffff:127.0.0.1]:{port}/", Rule.ADDRESS_EMBEDDED),
    ("http://[::ffff:7f00:1]:{port}/", Rule.ADDRESS_EMBEDDED),
    ("http://[::ffff:8.8.8.8]/", Rule.ADDRESS_EMBEDDED),
    ("http://[::ffff:0:127.0.0.1]/", Rule.ADDRESS_EMBEDDED),
    ("http://[::127.0.0.1]/", Rule.ADDRESS_EMBEDDED),
    ("http://[64:ff9b::7f00:1]/", Rule.ADDRESS_EMBEDDED),
    ("http://[64:ff9b::169.254.169.254]/", Rule.ADDRESS_EMBEDDED),
    ("http://[64:ff9b:1::a00:1]/", Rule.ADDRESS_EMBEDDED),
    ("http://[2002:7f00:1::]/", Rule.ADDRESS_EMBEDDED),
    ("http://[2001:0:7f00:1::]/", Rule.ADDRESS_EMBEDDED),
    ("http://[fe80::1]/", Rule.ADDRESS_LINK_LOCAL),
    ("http://[fc00::1]/", Rule.ADDRESS_PRIVATE),
    ("http://[fd12:3456:789a::1]/", Rule.ADDRESS_PRIVATE),
    ("http://[fec0::1]/", Rule.ADDRESS_PRIVATE),
    ("http://[ff02::1]/", Rule.ADDRESS_MULTICAST),
    ("http://[2001:db8::1]/", Rule.ADDRESS_DOCUMENTATION),
    ("http://[3fff::1]/", Rule.ADDRESS_DOCUMENTATION),
    ("http://[100::1]/", Rule.ADDRESS_RESERVED),
    ("http://[2001:2::1]/", Rule.ADDRESS_RESERVED),
    ("http://[4000::1]/", Rule.ADDRESS_RESERVED),
    ("http://[fe80::1%25eth0]/", Rule.HOST_MALFORMED),
    ("http://[::1%25lo]:{port}/", Rule.HOST_MALFORMED),
    ("http://[::1%lo]:{port}/", Rule.HOST_MALFORMED),
    ("http://[v1.fe80::1]/", Rule.HOST_MALFORMED),
    ("http://[::1/", Rule.HOST_MALFORMED),
    ("http://[::1]x/", Rule.HOST_MALFORMED),
    ("http://::1:{port}/", Rule.HOST_MALFORMED),
    ("http://[127.0.0.1]:{port}/", Rule.HOST_MALFORMED),
    ("http://[]/", Rule.HOST_MALFORMED),
]
NETWORK_FORMS = [
    ("http://10.0.0.1/", Rule.ADDRESS_PRIVATE),
    ("http://172.16.0.1/", Rule.ADDRESS_PRIVATE),
    ("http://172.31.255.255/", Rule.ADDRESS_PRIVATE),
    ("http://192.168.1.1/", Rule.ADDRESS_PRIVATE),
    ("http://100.64.0.1/", Rule.ADDRESS_SHARED),
    ("http://100.127.255.255/", Rule.ADDRESS_SHARED),
    ("http://169.254.1.1/", Rule.ADDRESS_LINK_LOCAL),
    ("http://224.0.0.1/", Rule.ADDRESS_MULTICAST),
    ("http://239.255.255.250/", Rule.ADDRESS_MULTICAST),
    ("http://240.0.0.1/", Rule.ADDRESS_RESERVED),
    ("http://255.255.255.255/", Rule.ADDRESS_RESERVED),
    ("http://198.18.0.1/", Rule.ADDRESS_RESERVED),
    ("http://192.0.0.1/", Rule.ADDRESS_RESERVED),
    ("http://192.0.2.1/", Rule.ADDRESS_DOCUMENTATION),
    ("http://198.51.100.1/", Rule.ADDRESS_DOCUMENTATION),
    ("http://203.0.113.1/", Rule.ADDRESS_DOCUMENTATION),
    ("http://192.88.99.1/", Rule.ADDRESS_EMBEDDED),
]
METADATA_FORMS = [
    ("http://169.254.169.254/latest/meta-data/iam/", Rule.ADDRESS_METADATA),
    ("http://169.254.170.2/v2/credentials/", Rule.ADDRESS_METADATA),
    ("http://169.254.170.23/v1/credentials", Rule.ADDRESS_METADATA),
    ("http://100.100.100.200/latest/meta-data/", Rule.ADDRESS_METADATA),
    ("http://192.0.0.192/latest/", Rule.ADDRESS_METADATA),
    ("http://168.63.129.16/machine?comp=goalstate", Rule.ADDRESS_METADATA),
    ("http://[fd00:ec2::254]/latest/meta-data/", Rule.ADDRESS_METADATA),
    ("http://[fd00:ec2::23]/", Rule.ADDRESS_METADATA),
    ("http://[fd20:ce::254]/", Rule.ADDRESS_METADATA),
    ("http://[fe80::a9fe:a9fe]/", Rule.ADDRESS_METADATA),
    ("http://metadata.google.internal/computeMetadata/v1/", Rule.HOST_METADATA),
    ("http://METADATA.GOOGLE.INTERNAL./", Rule.HOST_METADATA),
    ("http://metadata/computeMetadata/v1/", Rule.HOST_METADATA),
    ("http://metadata.tencentyun.com/", Rule.HOST_METADATA),
    ("http://instance-data/latest/", Rule.HOST_METADATA),
    ("http://kubernetes.default.svc/api", Rule.HOST_INTERNAL),
    ("http://vault.service.consul/", Rule.HOST_INTERNAL),
    ("http://db.internal/", Rule.HOST_INTERNAL),
    ("http://printer.local/", Rule.HOST_INTERNAL),
    ("http://postgres/", Rule.HOST_INTERNAL),
]
USERINFO_FORMS = [
    ("http://example.com@127.0.0.1:{port}/", Rule.USERINFO),
    ("http://127.0.0.1:{port}@example.com/", Rule.USERINFO),
    ("http://user:pass@example.com/", Rule.USERINFO),
    ("http://@127.0.0.1:{port}/", Rule.USERINFO),
    ("http://example.com:80@127.0.0.1:{port}@example.com/", Rule.USERINFO),
    ("http://example.com%40127.0.0.1:{port}/", Rule.HOST_MALFORMED),
    ("http://foo@[::1]:{port}/", Rule.USERINFO),
]
PARSER_FORMS = [
    (r"http://example.com\@127.0.0.1:{port}/", Rule.URL_CHARACTERS),
    (r"http:\\127.0.0.1:{port}/", Rule.URL_CHARACTERS),
    (r"http://127.0.0.1:{port}\example.com/", Rule.URL_CHARACTERS),
    ("http://example.com\t.evil/", Rule.URL_CHARACTERS),
    (" http://127.0.0.1:{port}/", Rule.URL_CHARACTERS),
    ("http://127.0.0.1 :{port}/", Rule.URL_CHARACTERS),
    ("http://exa\u200bmple.com/", Rule.URL_CHARACTERS),
    ("http://example.com\u2028/", Rule.URL_CHARACTERS),
    ("http://example.com/\u202egnp.exe", Rule.URL_CHARACTERS),
    ("http://example.com\u3000/", Rule.URL_CHARACTERS),
    ("http://example.com/\ud800", Rule.URL_CHARACTERS),
    ("http://example.com/\x00", Rule.URL_CHARACTERS),
    ("http://example.com/a\r\nHost: internal", Rule.URL_CHARACTERS),
    ("http://example.com/ HTTP/1.1\r\n\r\nGET /admin", Rule.URL_CHARACTERS),
    ("http://127.0.0.1%0d%0aX:{port}/", Rule.HOST_MALFORMED),
    ("http://%31%32%37.0.0.1:{port}/", Rule.HOST_MALFORMED),
    ("http://127%2e0%2e0%2e1:{port}/", Rule.HOST_MALFORMED),
    ("http://example.com%2f@127.0.0.1/", Rule.USERINFO),
    ("http://example.com%00.evil.com/", Rule.HOST_MALFORMED),
    ("http://１２７.０.０.１:{port}/", Rule.HOST_MALFORMED),
    ("http://①②⑦.⓪.⓪.①:{port}/", Rule.HOST_MALFORMED),
    ("http://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ:{port}/", Rule.HOST_MALFORMED),
    ("http://127。0。0。1:{port}/", Rule.HOST_MALFORMED),
    ("http://127．0．0．1:{port}/", Rule.HOST_MALFORMED),
    ("http://127.0.0｡1:{port}/", Rule.HOST_MALFORMED),
    ("http://example.com／@evil/", Rule.USERINFO),
    ("http://example.com⁄evil.com/", Rule.HOST_MALFORMED),
    ("http://xn--/", Rule.HOST_MALFORMED),
    ("http://xn--a.example.com/", Rule.HOST_MALFORMED),
    ("http://example..com/", Rule.HOST_MALFORMED),
    ("http://.example.com/", Rule.HOST_MALFORMED),
    ("http://example.com../", Rule.HOST_MALFORMED),
    ("http://-example.com/", Rule.HOST_MALFORMED),
    ("http://exa mple.com/", Rule.URL_CHARACTERS),
    ("http://exa$mple.com/", Rule.HOST_MALFORMED),
    ("http://example.com,127.0.0.1/", Rule.HOST_MALFORMED),
    ("http://example.com;127.0.0.1/", Rule.HOST_MALFORMED),
    ("http:///127.0.0.1:{port}/", Rule.HOST_MALFORMED),
    ("http:////127.0.0.1:{port}/", Rule.HOST_MALFORMED),
    ("http:///", Rule.HOST_MALFORMED),
    ("http://?127.0.0.1", Rule.HOST_MALFORMED),
    ("http://#127.0.0.1", Rule.HOST_MALFORMED),
    ("http:127.0.0.1:{port}/", Rule.URL_MALFORMED),
    ("http:/127.0.0.1:{port}/", Rule.URL_MALFORMED),
    ("//127.0.0.1:{port}/", Rule.URL_MALFORMED),
    ("127.0.0.1:{port}", Rule.URL_MALFORMED),
    ("", Rule.URL_MALFORMED),
    ("/etc/passwd", Rule.URL_MALFORMED),
    ("http://example.com/%zz", Rule.URL_MALFORMED),
    ("http://" + "a" * 64 + ".com/", Rule.HOST_MALFORMED),
    ("http://" + "a." * 127 + "com/", Rule.HOST_MALFORMED),
    ("http://example.com/" + "a" * 4096, Rule.URL_TOO_LONG),
]
SCHEME_FORMS = [
    ("file:///etc/passwd", Rule.SCHEME),
    ("gopher://127.0.0.1:{port}/_SET%20x", Rule.SCHEME),
    ("dict://127.0.0.1:{port}/stats", Rule.SCHEME),
    ("ftp://example.com/", Rule.SCHEME),
    ("ldap://127.0.0.1/", Rule.SCHEME),
    ("ws://127.0.0.1:{port}/", Rule.SCHEME),
    ("data:text/html,hello", Rule.SCHEME),
    ("javascript:alert(1)", Rule.SCHEME),
    ("jar:http://127.0.0.1!/", Rule.SCHEME),
    ("unix:/var/run/docker.sock", Rule.SCHEME),
    ("http+unix://%2Fvar%2Frun%2Fdocker.sock/", Rule.SCHEME),
    ("localhost:{port}/", Rule.SCHEME),
]
PORT_FORMS = [
    ("http://example.com:22/", Rule.PORT),
    ("http://example.com:6379/", Rule.PORT),
    ("http://example.com:0/", Rule.PORT),
    ("http://example.com:65616/", Rule.PORT),
    ("http://example.com:/", Rule.PORT),
    ("http://example.com:080/", Rule.PORT),
    ("http://example.com:+80/", Rule.PORT),
    ("http://example.com:８０/", Rule.PORT),
    ("http://example.com:80:80/", Rule.PORT),
]
FORMS = [
    *LOOPBACK_FORMS,
    *NUMBER_FORMS,
    *IPV6_FORMS,
    *NETWORK_FORMS,
    *METADATA_FORMS,
    *USERINFO_FORMS,
    *PARSER_FORMS,
    *SCHEME_FORMS,
    *PORT_FORMS,
]


@pytest.mark.parametrize(("form", "rule"), FORMS, ids=lambda v: ascii(v)[:60])
async def test_hostile_urls_are_refused_without_a_connection(
    internet: Any, form: str, rule: Rule
) -> None:
    canary = await internet.site()
    client = await internet.client(ports=(80, 443, canary.port))
    with pytest.raises(HttpRefused) as refused:
        await client.request("GET", form.replace("{port}", str(canary.port)))
    assert refused.value.rule is rule
    assert (internet.dialled, internet.names.asked, canary.connections) == ([], [], 0)


RESOLVED = [
    ("loopback", ["127.0.0.1"], Rule.ADDRESS_LOOPBACK),
    ("ipv6 loopback", ["::1"], Rule.ADDRESS_LOOPBACK),
    ("private", ["10.1.2.3"], Rule.ADDRESS_PRIVATE),
    ("metadata", ["169.254.169.254"], Rule.ADDRESS_METADATA),
    ("ipv6 metadata", ["fd00:ec2::254"], Rule.ADDRESS_METADATA),
    ("link local with zone", ["fe80::1%eth0"], Rule.ADDRESS_LINK_LOCAL),
    ("mapped", ["::ffff:10.0.0.1"], Rule.ADDRESS_EMBEDDED),
    ("nat64", ["64:ff9b::a00:1"], Rule.ADDRESS_EMBEDDED),
    ("any address", ["0.0.0.0"], Rule.ADDRESS_UNSPECIFIED),
    ("public first, private second", ["93.184.215.14", "10.0.0.1"], Rule.ADDRESS_PRIVATE),
    ("private first, public second", ["10.0.0.1", "93.184.215.14"], Rule.ADDRESS_PRIVATE),
    ("ipv4 public, ipv6 private", ["93.184.215.14", "fd00::1"], Rule.ADDRESS_PRIVATE),
    ("not an address", ["localhost"], Rule.ADDRESS_MALFORMED),
    ("private beyond the first sixteen", ["8.8.8.8"] * 20 + ["10.0.0.1"], Rule.ADDRESS_PRIVATE),
]


@pytest.mark.parametrize(
    ("addresses", "rule"), [r[1:] for r in RESOLVED], ids=[r[0] for r in RESOLVED]
)
async def test_names_that_lead_inside_are_refused(
    internet: Any, addresses: list[str], rule: Rule
) -> None:
    canary = await internet.site()
    internet.names.table["127.0.0.1.nip.example"] = addresses
    client = await internet.client(ports=(80, canary.port))
    with pytest.raises(HttpRefused) as refused:
        await client.request("GET", f"http://127.0.0.1.nip.example:{canary.port}/")
    assert refused.value.rule is rule
    assert (internet.dialled, canary.connections) == ([], 0)


async def test_a_name_that_changes_its_address_is_checked_for_every_connection(
    internet: Any, reply: Any
) -> None:
    site = await internet.site(lambda _: reply("200 OK", b"one", Connection="close"))
    internet.names.table["rebind.example"] = [["93.184.215.14"], ["127.0.0.1"]]
    client = await internet.client()
    assert (await client.request("GET", "http://rebind.example/")).body == b"one"
    with pytest.raises(HttpRefused) as refused:
        await client.request("GET", "http://rebind.example/")
    assert refused.value.rule is Rule.ADDRESS_LOOPBACK
    assert internet.dialled == [("93.184.215.14", 80)]
    assert site.connections == 1


async def test_the_name_is_resolved_once_and_the_connection_goes_to_that_answer(
    internet: Any,
) -> None:
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
    ("https://evil.com#example.com", Rule.HOST_NOT_ALLOWED),
    ("https://evil.com?example.com", Rule.HOST_NOT_ALLOWED),
    ("https://notexample.org/", Rule.HOST_NOT_ALLOWED),
    ("https://example.org/", Rule.HOST_NOT_ALLOWED),  # the pattern is *.example.org
    ("https://example.org.evil.com/", Rule.HOST_NOT_ALLOWED),
    ("https://1.1.1.1/", Rule.HOST_NOT_ALLOWED),
    ("https://еxample.com/", Rule.HOST_NOT_ALLOWED),  # Cyrillic
    ("https://api.example.com/", Rule.HOST_NOT_ALLOWED),
    ("http://example.com/", Rule.SCHEME),
    ("https://example.com:8443/", Rule.PORT),
    ("https://a.example.org@evil.com/", Rule.USERINFO),
]


@pytest.mark.parametrize(("url", "rule"), ALLOW_LIST)
async def test_hosts_that_only_resemble_allowed_ones_are_refused(
    internet: Any, url: str, rule: Rule
) -> None:
    client = await internet.client(hosts=("example.com", "*.example.org"), allow_http=False)
    with pytest.raises(HttpRefused) as refused:
        await client.request("GET", url)
    assert refused.value.rule is rule
    assert internet.dialled == []


async def test_nothing_is_allowed_until_it_is_named(internet: Any) -> None:
    client = await internet.client(hosts=())
    with pytest.raises(HttpRefused) as refused:
        await client.request("GET", "https://example.com/")
    assert refused.value.rule is Rule.HOST_NOT_ALLOWED


def test_the_corpus_is_large_enough() -> None:
    assert len({form for form, _ in FORMS}) + len(RESOLVED) + len(ALLOW_LIST) >= 150
