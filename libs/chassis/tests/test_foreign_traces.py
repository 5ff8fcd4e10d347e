"""A caller's trace goes on here if the caller is inside, and is linked to otherwise."""

from collections.abc import Mapping
from typing import Any

import grpc
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import format_span_id, format_trace_id

from bos_chassis.auth.callers import Principal
from bos_chassis.interceptors import ServerCall, Tracing
from bos_chassis.telemetry import Telemetry

pytestmark = pytest.mark.security

TRACE_ID, SPAN_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PROXY = "through-a-proxy"


class ByKind:
    """Takes the bearer token for the kind of credential that it is."""

    async def authenticate(self, metadata: Mapping[str, str]) -> Principal | None:
        kind: Any = metadata["authorization"].removeprefix("Bearer ")
        return Principal("ada", "", "", kind)


async def _span(running: Any, stub_of: Any, echo: Any, kind: str, *more: Any, flags: str) -> Any:
    metadata = (
        ("authorization", f"Bearer {kind}"),
        ("traceparent", f"00-{TRACE_ID}-{SPAN_ID}-{flags}"),
        *more,
    )
    async with grpc.aio.insecure_channel(running.server.address) as channel:
        await stub_of(channel).get(echo(), metadata=metadata)
    (span,) = [span for span in running.telemetry.spans if span.kind.name == "SERVER"]
    return span


def _assert_linked(span: Any) -> None:
    assert span.parent is None
    assert format_trace_id(span.context.trace_id) != TRACE_ID
    (link,) = span.links
    assert format_trace_id(link.context.trace_id) == TRACE_ID
    assert format_span_id(link.context.span_id) == SPAN_ID


def _assert_continued(span: Any) -> None:
    assert format_trace_id(span.context.trace_id) == TRACE_ID
    assert format_span_id(span.parent.span_id) == SPAN_ID
    assert not span.links


@pytest.mark.parametrize(
    ("kind", "flags"), [("user_token", "01"), ("static_key", "00"), ("api_key", "01")]
)
async def test_trace_of_an_external_caller_is_linked_to(
    start: Any, stub_of: Any, echo: Any, kind: str, flags: str
) -> None:
    running = await start(auth=ByKind())
    _assert_linked(await _span(running, stub_of, echo, kind, flags=flags))


async def test_a_trace_of_a_run_goes_on(start: Any, stub_of: Any, echo: Any) -> None:
    running = await start(auth=ByKind())
    _assert_continued(await _span(running, stub_of, echo, "run_token", flags="01"))


@pytest.mark.parametrize("value", [PROXY, "made up"])
async def test_a_trace_goes_on_through_a_proxy_that_proves_what_it_is(
    start: Any, stub_of: Any, echo: Any, value: str
) -> None:
    running = await start(
        auth=ByKind(),
        from_proxy=lambda metadata: "" if metadata.get("bos-proxy-token") == PROXY else None,
    )
    entry = ("bos-proxy-token", value)
    span = await _span(running, stub_of, echo, "user_token", entry, flags="01")
    check = _assert_continued if value == PROXY else _assert_linked
    check(span)


async def test_a_setting_trusts_foreign_trace_contexts(start: Any, stub_of: Any, echo: Any) -> None:
    running = await start(auth=ByKind(), trust_trace_context=True)
    _assert_continued(await _span(running, stub_of, echo, "user_token", flags="01"))


@pytest.mark.parametrize("value", ["00-0-0-00", "x" * 500])
async def test_what_is_no_trace_context_is_left_out(
    start: Any, stub_of: Any, echo: Any, value: str
) -> None:
    running = await start(auth=ByKind())
    metadata = (("authorization", "Bearer user_token"), ("traceparent", value))
    async with grpc.aio.insecure_channel(running.server.address) as channel:
        await stub_of(channel).get(echo(), metadata=metadata)
    (span,) = [span for span in running.telemetry.spans if span.kind.name == "SERVER"]
    assert span.parent is None
    assert not span.links


@pytest.mark.parametrize("believed", [False, True])
async def test_a_foreign_sampled_bit_has_nothing_recorded(believed: bool) -> None:
    kept = InMemorySpanExporter()
    provider = TracerProvider(sampler=ParentBased(ALWAYS_OFF))
    provider.add_span_processor(SimpleSpanProcessor(kept))
    telemetry = Telemetry("test", provider, Telemetry.for_tests()._shared)
    tracing = Tracing(telemetry, lambda _: believed)
    call = ServerCall(
        "bos.test.v1.EchoService",
        "Get",
        (("traceparent", f"00-{TRACE_ID}-{SPAN_ID}-01"),),
        streaming=False,
        is_open=False,
    )
    await tracing.begin(call)
    tracing.end(call)
    assert len(kept.get_finished_spans()) == (1 if believed else 0)
