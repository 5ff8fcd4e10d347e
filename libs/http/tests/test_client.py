import errno
import os
import socket
from collections.abc import AsyncIterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bos_chassis.telemetry import Telemetry
from bos_errors import BosError, ConfigurationError, to_status
from bos_http import (
    Failure,
    HttpClient,
    HttpFailed,
    HttpPolicy,
    HttpRefused,
    HttpResponse,
    HttpTimedOut,
    Rule,
)
from bos_http.errors import _SENTENCES
from bos_http.gate import Gate
from bos_http.url import parse

pytestmark = pytest.mark.security

URL = "http://example.com/path?secret=1"


async def test_a_request_arrives_as_it_was_given(internet: Any) -> None:
    site = await internet.site(names=["example.com"])
    client = await internet.client(user_agent="bos-test")
    await client.request(
        "POST", URL, headers={"X-Key": "a\tb c", "Content-Type": "text/plain"}, body=b"body"
    )
    (request,) = site.requests
    assert request.line == "POST /path?secret=1 HTTP/1.1"
    assert request.body == b"body"
    assert request.headers == {
        "host": "example.com",
        "accept": "*/*",
        "accept-encoding": "gzip, deflate",
        "user-agent": "bos-test",
        "x-key": "a\tb c",
        "content-type": "text/plain",
        "content-length": "4",
        "connection": "close",
    }


async def test_a_response_is_complete(internet: Any, reply: Any) -> None:
    client = await internet.client_of(
        lambda _: reply(
            "404 Not Found", "é".encode("latin-1"), Content_Type="Text/Plain; charset=latin-1"
        )
    )
    response = await client.request("GET", URL + "#fragment")
    assert (response.status, response.ok, response.final_url) == (404, False, URL)
    assert (response.content_type, response.text()) == ("text/plain", "é")
    assert response.headers["CONTENT-type"] == "Text/Plain; charset=latin-1"
    assert 0 < response.elapsed_s < 60


@pytest.mark.parametrize(
    ("content_type", "body", "text"),
    [
        ("text/plain", "é".encode(), "é"),
        ("text/plain; charset=UTF-8", b"\xff", "\ufffd"),
        ('text/plain; charset="windows-1252"', b"\x80", "€"),
        ("text/plain; charset=iso-8859-99", b"a", "a"),
        ("text/plain; charset=unicode_escape", rb"\x41", r"\x41"),
        ("", b"a", "a"),
    ],
)
def test_text_is_decoded_by_known_charsets_only(content_type: str, body: bytes, text: str) -> None:
    response = HttpResponse(200, {"Content-Type": content_type}, body, URL, 0.0)
    assert response.text() == text


async def test_header_values_can_always_be_written_as_text(internet: Any) -> None:
    head = b"HTTP/1.1 200 OK\r\nX-Name: caf\xe9\r\nX-Good: caf\xc3\xa9\r\nContent-Length: 0\r\n\r\n"
    client = await internet.client_of(lambda _: head)
    response = await client.request("GET", URL)
    assert (response.headers["x-name"], response.headers["x-good"]) == ("caf\ufffd", "café")


@pytest.mark.parametrize("method", ["DELETE", "get", "CONNECT", "G\r\nX: y", ""])
async def test_methods_that_are_not_allowed_are_refused(internet: Any, method: str) -> None:
    client = await internet.client_of()
    assert await internet.refusal(client.request(method, URL)) is Rule.METHOD
    assert internet.dialled == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Host", "internal"),
        ("Content-Length", "0"),
        ("Transfer-Encoding", "chunked"),
        ("Connection", "Upgrade"),
        ("Expect", "100-continue"),
        ("Accept-Encoding", "br"),
        ("Proxy-Authorization", "Basic x"),
        ("traceparent", "00-1-1-01"),
        ("Baggage", "user=1"),
        ("Bos-Run-Token", "token"),
        ("X-Evil", "a\r\nHost: internal"),
        ("X-Evil", "a\x00b"),
        ("X-Evil", " a"),
        ("X-Evil", "é"),
        ("X\r\nHost", "a"),
        ("X Y", "a"),
        ("", "a"),
    ],
)
async def test_headers_that_are_not_the_callers_are_refused(
    internet: Any, name: str, value: str
) -> None:
    client = await internet.client_of()
    assert (
        await internet.refusal(client.request("GET", URL, headers={name: value}))
        is Rule.REQUEST_HEADER
    )
    assert internet.dialled == []


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"headers": {"X-A": "x" * 93}}, None),
        ({"headers": {"X-A": "x" * 94}}, Rule.REQUEST_HEADERS_TOO_LARGE),
        ({"body": b"x" * 1000}, None),
        ({"body": b"x" * 1001}, Rule.REQUEST_BODY_TOO_LARGE),
    ],
    ids=["headers", "headers too large", "body", "body too large"],
)
async def test_request_has_limits(internet: Any, given: Any, rule: Rule | None) -> None:
    client = await internet.client_of(max_request_header_bytes=100, max_request_bytes=1000)
    call = client.request("POST", URL, **given)
    if rule is None:
        assert (await call).ok
        return
    assert await internet.refusal(call) is rule
    assert internet.dialled == []


async def hang_up() -> AsyncIterator[bytes]:
    yield b""


@pytest.mark.parametrize(("method", "sent"), [("GET", 2), ("PUT", 1), ("POST", 1)])
async def test_only_safe_methods_are_repeated_when_the_host_hangs_up(
    internet: Any, method: str, sent: int
) -> None:
    site = await internet.site(lambda _: hang_up(), names=["example.com"])
    client = await internet.client()
    assert await internet.refusal(client.request(method, URL)) is Failure.INTERRUPTED
    assert len(site.requests) == sent


@pytest.mark.parametrize(("method", "connections"), [("GET", 1), ("POST", 2)])
async def test_what_may_change_things_gets_a_connection_of_its_own(
    internet: Any, method: str, connections: int
) -> None:
    site = await internet.site(names=["example.com"])
    client = await internet.client()
    for _ in range(2):
        await client.request(method, URL)
    assert (len(site.requests), site.connections) == (2, connections)


async def test_cookies_are_not_kept(internet: Any, reply: Any) -> None:
    site = await internet.site(lambda _: reply("200 OK", Set_Cookie="a=b"), names=["example.com"])
    client = await internet.client()
    for _ in range(2):
        await client.request("GET", URL)
    assert [r.headers.get("cookie") for r in site.requests] == [None, None]
    assert site.connections == 1


async def test_the_environment_names_no_proxy_and_no_credentials(
    internet: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    proxy = await internet.site()
    netrc = tmp_path / "netrc"
    netrc.write_text("machine example.com login user password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
    site = await internet.site(names=["example.com"])
    client = await internet.client()
    await client.request("GET", URL)
    assert proxy.connections == 0
    assert "authorization" not in site.requests[0].headers


async def test_session_keys_are_not_written_where_the_environment_says(
    internet: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys"))
    client = HttpClient(
        HttpPolicy.load(hosts=["*"], ca_file=internet.authority.ca_file),
        Telemetry.for_tests(),
        resolver=internet.names,
    )
    await internet.site(tls_names=["example.com"])
    async with client:
        assert (await client.request("GET", "https://example.com/")).ok
    assert os.listdir(tmp_path) == []


async def test_tls_names_host_while_address_is_dialled(internet: Any) -> None:
    site = await internet.site(tls_names=["example.com"])
    client = await internet.client()
    assert (await client.request("GET", "https://example.com./")).ok
    assert site.sni == ["example.com"]
    assert internet.dialled == [("93.184.215.14", 443)]


@pytest.mark.parametrize("url", ["https://other.example/", "https://93.184.215.14/"])
async def test_certificate_for_another_host_is_refused(internet: Any, url: str) -> None:
    site = await internet.site(tls_names=["example.com"])
    internet.names.table["other.example"] = ["93.184.215.14"]
    client = await internet.client()
    assert await internet.refusal(client.request("GET", url)) is Failure.TLS
    assert site.requests == []


async def test_an_unknown_authority_is_refused(internet: Any) -> None:
    site = await internet.site(tls_names=["example.com"])
    client = await internet.client(ca_file=None)
    assert await internet.refusal(client.request("GET", "https://example.com/")) is Failure.TLS
    assert site.requests == []


async def test_unreadable_authorities_name_the_setting(tmp_path: Path) -> None:
    client = HttpClient(HttpPolicy.load(ca_file=tmp_path / "none.pem"), Telemetry.for_tests())
    with pytest.raises(ConfigurationError, match="BOS_HTTP_CA_FILE"):
        await client.__aenter__()


@pytest.mark.parametrize("addresses", [None, []])
async def test_a_name_without_address_fails(internet: Any, addresses: Any) -> None:
    internet.names.table["example.com"] = addresses
    client = await internet.client()
    assert await internet.refusal(client.request("GET", URL)) is Failure.RESOLVE


async def test_the_next_address_is_tried_when_one_does_not_answer(internet: Any) -> None:
    await internet.site()
    internet.names.table["example.com"] = ["8.8.8.8", "93.184.215.14"]
    client = await internet.client()
    assert (await client.request("GET", URL)).ok
    assert internet.dialled == [("8.8.8.8", 80), ("93.184.215.14", 80)]


async def test_the_systems_resolver_is_used_and_checked(internet: Any) -> None:
    site = await internet.site()
    origin = f"http://localhost:{site.port}"
    policy = HttpPolicy.load(internal_origins={origin: ["127.0.0.0/8", "::1/128"]})
    async with HttpClient(policy, Telemetry.for_tests()) as client:
        assert (await client.request("GET", origin)).ok
    wrong = HttpPolicy.load(internal_origins={origin: ["10.0.0.0/8"]})
    async with HttpClient(wrong, Telemetry.for_tests()) as client:
        with pytest.raises(HttpRefused) as refused:
            await client.request("GET", origin)
    assert refused.value.rule is Rule.ADDRESS_LOOPBACK


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.1", "169.254.169.254"])
def test_no_socket_is_opened_for_an_address_that_slipped_through(address: str) -> None:
    gate = Gate(HttpPolicy.load(hosts=["*"], internal_origins={"http://erp": ["10.1.0.0/16"]}))
    with pytest.raises(OSError) as refused:  # noqa: PT011 - the number is checked
        gate.open_socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", (address, 80)))
    assert refused.value.errno == errno.EACCES
    gate.open_socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("10.1.0.1", 80))).close()
    gate.open_socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("8.8.8.8", 80))).close()


async def test_the_socket_is_guarded_even_if_the_resolver_is_not(
    internet: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Gate, "check_address", lambda _, __, ___, text: ip_address(text))
    internet.names.table["inside.example"] = ["10.0.0.1"]
    client = await internet.client()
    for host in ("inside.example", "10.0.0.1"):
        assert await internet.refusal(client.request("GET", f"http://{host}/")) is Failure.CONNECT
    assert internet.dialled == []


async def test_trace_context_goes_to_our_own_and_to_named_hosts_only(internet: Any) -> None:
    telemetry = Telemetry.for_tests()
    site = await internet.site(
        names=["example.com", "friend.example", "a.friends.example", "erp.corp"]
    )
    internet.names.table["erp.corp"] = ["127.0.0.1"]
    own = f"http://erp.corp:{site.port}/"
    client = await internet.client(
        telemetry,
        trace_hosts=("friend.example", "*.friends.example"),
        internal_origins={own: ["127.0.0.1/32"]},
    )
    with telemetry.tracer.start_as_current_span("step") as step:
        for url in (URL, "http://friend.example/", "http://a.friends.example/", own):
            await client.request("GET", url)
    sent = [r.headers.get("traceparent") for r in site.requests]
    assert sent[0] is None
    trace_id = f"{step.get_span_context().trace_id:032x}"
    assert [value.split("-")[1] for value in sent[1:] if value] == [trace_id] * 3


async def test_a_call_leaves_a_span_without_its_query(internet: Any, reply: Any) -> None:
    telemetry = Telemetry.for_tests()
    client = await internet.client_of(
        lambda r: (
            reply("302 F", Location="/end?secret=2")
            if r.path != "/end?secret=2"
            else reply("200 OK")
        ),
        telemetry=telemetry,
    )
    await client.request("GET", URL)
    (span,) = telemetry.spans
    assert dict(span.attributes or {}) == {
        "http.request.method": "GET",
        "server.address": "example.com",
        "server.port": 80,
        "url.full": "http://example.com/end",
        "http.request.resend_count": 1,
        "http.response.status_code": 200,
    }
    assert span.status.is_unset


async def test_a_refusal_leaves_its_rule_in_span_metrics_and_log(internet: Any) -> None:
    telemetry = Telemetry.for_tests("web")
    client = await internet.client(telemetry)
    with pytest.raises(HttpRefused):
        await client.request("GET", "http://10.0.0.1/?secret=1")
    (span,) = telemetry.spans
    assert (span.attributes or {})["bos.http.rule"] == "address_private"
    assert not span.status.is_ok
    (line,) = telemetry.logs
    assert (line["event"], line["rule"], line["host"]) == (
        "outgoing call refused",
        "address_private",
        "10.0.0.1",
    )
    labels = {"service": "web", "rule": "address_private"}
    assert telemetry.registry.get_sample_value("bos_http_client_refusals_total", labels) == 1


async def test_calls_are_counted_by_outcome_and_class_of_host(internet: Any, reply: Any) -> None:
    telemetry = Telemetry.for_tests("web")
    site = await internet.site(lambda _: reply("404 N"), names=["example.com", "named.example"])
    internet.names.table["erp.corp"] = ["127.0.0.1"]
    own = f"http://erp.corp:{site.port}/"
    policy = {"hosts": ("*", "named.example"), "internal_origins": {own: ["127.0.0.1/32"]}}
    client = await internet.client(telemetry, **policy)
    again = await internet.client(telemetry, **policy)  # shares the registry
    await client.request("GET", URL)
    await again.request("GET", "http://named.example/")
    await client.request("GET", own)
    with pytest.raises(HttpFailed):
        await client.request("GET", "http://8.8.8.8/")
    with pytest.raises(HttpRefused):
        await client.request("GET", "http://127.0.0.1/")
    with pytest.raises(HttpTimedOut):
        await client.request("GET", URL, timeout_s=0)
    counted = {
        (sample.labels["host_class"], sample.labels["outcome"]): sample.value
        for metric in telemetry.registry.collect()
        for sample in metric.samples
        if sample.name == "bos_http_client_requests_total"
    }
    assert counted == {
        ("any", "4xx"): 1,
        ("named", "4xx"): 1,
        ("internal", "4xx"): 1,
        ("any", "failed"): 1,
        ("none", "refused"): 1,
        ("none", "timed_out"): 1,
    }


async def test_no_message_names_a_host_or_an_address(internet: Any, reply: Any) -> None:
    await internet.site(
        lambda _: reply("302 F", Location="http://10.9.8.7/vault"), names=["example.com"]
    )
    internet.names.table["inside.example"] = ["10.9.8.7"]
    internet.names.table["down.example"] = ["8.8.4.4"]
    client = await internet.client()
    for host in ("example.com", "inside.example", "down.example", "unknown.example", "10.9.8.7"):
        with pytest.raises(BosError) as raised:
            await client.request("GET", f"http://{host}/")
        shown = str(to_status(raised.value)) + repr(raised.value)
        assert not any(text in shown for text in (host, "10.9", "8.8", "vault"))
        assert raised.value.__cause__ is None


def test_every_rule_has_a_sentence() -> None:
    silent = {rule for rule in Rule if rule not in _SENTENCES}
    assert all(rule.name.startswith("ADDRESS_") for rule in silent)


def test_the_errors_keep_their_class_their_rule_and_their_code() -> None:
    refused, failed, late = HttpRefused(Rule.PORT), HttpFailed(Failure.TLS), HttpTimedOut()
    assert (refused.code, failed.code, late.code) == (
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
    )
    assert refused.metadata == {"rule": "port"}
    assert failed.metadata == {"failure": "tls"}


@given(st.text(alphabet=st.sampled_from("htp:/@.[]#?%\\ 01270xa-f\tⓛ。１"), max_size=40))
def test_parsed_urls_round_trip(text: str) -> None:
    try:
        target = parse("http://" + text, max_chars=4096)
    except HttpRefused:
        return
    assert parse(target.url, max_chars=4096) == target


@given(st.text(max_size=200))
def test_reading_anything_ends_with_a_target_or_a_refusal(text: str) -> None:
    for url in (text, "http://" + text, "http://example.com/" + text):
        try:
            parse(url, max_chars=4096)
        except HttpRefused:
            continue
