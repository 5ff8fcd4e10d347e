"""Spans that are exported from a record, of HTTP requests, and of SQL statements."""

from collections.abc import MutableMapping
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan

from bos_chassis.metrics import current_exemplar
from bos_chassis.settings import TelemetrySettings
from bos_chassis.telemetry import Telemetry, setup_telemetry
from bos_chassis.tracing import attributes as names
from bos_chassis.tracing.http import TracedApp
from bos_chassis.tracing.queries import record_query
from bos_chassis.tracing.spans import (
    FinishedSpan,
    context_of,
    stored_context,
    stored_trace_id,
    traceparent_of,
    under,
)
from bos_testkit.otlp.spans import span_receiver

TRACE_ID = stored_trace_id("run", "1")
ROOT = stored_context(TRACE_ID, 1, "run")
UNSAMPLED = stored_context(TRACE_ID, 0, "run")
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SERVER = trace.SpanKind.SERVER


def named(telemetry: Telemetry, kind: trace.SpanKind) -> list[ReadableSpan]:
    return [span for span in telemetry.spans if span.kind is kind]


def parent_of(span: ReadableSpan) -> trace.SpanContext:
    return span.parent


# Spans that are exported later


async def test_call_under_a_deferred_span_is_its_child(start: Any, echo: Any) -> None:
    running = await start()
    with under(ROOT):
        await running.stub.get(echo())
    (span,) = named(running.telemetry, SERVER)
    assert (parent_of(span).trace_id, parent_of(span).span_id) == (ROOT.trace_id, ROOT.span_id)
    assert not named(running.client_telemetry, trace.SpanKind.CLIENT)


async def test_call_outside_of_a_trace_begins_one_at_the_server(start: Any, echo: Any) -> None:
    running = await start()
    with under(None):
        await running.stub.get(echo())
    (span,) = named(running.telemetry, SERVER)
    assert span.parent is None
    assert not named(running.client_telemetry, trace.SpanKind.CLIENT)


async def test_spans_below_deferred_span_are_recorded_if_its_trace_is() -> None:
    telemetry = Telemetry.for_tests()
    for context in (ROOT, UNSAMPLED):
        with under(context), telemetry.tracer.start_as_current_span("work"):
            pass
    (span,) = telemetry.spans
    assert parent_of(span).span_id == ROOT.span_id


def test_exemplar_under_a_deferred_span_names_a_recorded_trace() -> None:
    with under(ROOT):
        assert current_exemplar() == {"trace_id": trace.format_trace_id(TRACE_ID)}
    with under(UNSAMPLED):
        assert current_exemplar() is None
    with under(None):
        assert current_exemplar() is None


def test_ids_are_the_same_in_every_process() -> None:
    assert stored_context(TRACE_ID, 1, "run") == ROOT
    assert f"{ROOT.trace_id:032x}" == "42ffffca4c2039d5a909acff1a1736af"
    assert f"{ROOT.span_id:016x}" == "d7c1d2d9f5944bfa"
    others = [
        stored_context(TRACE_ID, 1, "run", 1),
        stored_context(TRACE_ID, 1, "ru", "n"),
        stored_context(TRACE_ID + 1, 1, "run"),
    ]
    assert len({ROOT.span_id, *(each.span_id for each in others)}) == 4
    assert stored_trace_id("run", "2") != TRACE_ID


@pytest.mark.parametrize("text", ["x", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
def test_text_that_names_no_span_is_none(text: str) -> None:
    assert context_of(text) is None


def test_a_traceparent_is_read_as_it_was_written() -> None:
    context = context_of(CALLER)
    assert traceparent_of(context) == CALLER
    assert traceparent_of(trace.INVALID_SPAN_CONTEXT) == ""


def test_finished_span_is_exported_as_given() -> None:
    caller = context_of(CALLER)
    given = FinishedSpan(
        "run", ROOT, caller, 5, 9, {names.RUN_ID: "1"}, ((caller, "request"),), error="Timeout"
    )
    with span_receiver() as receiver:
        settings = TelemetrySettings(otlp_endpoint=receiver.endpoint)
        with setup_telemetry("gateway", settings) as telemetry:
            telemetry.export([given])
    (span,) = receiver.spans
    assert (span.service, span.name) == ("gateway", "run")
    assert (span.trace_id, span.span_id) == (f"{ROOT.trace_id:032x}", f"{ROOT.span_id:016x}")
    assert span.parent_id == CALLER.split("-")[2]
    assert (span.start_ns, span.end_ns) == (5, 9)
    assert span.attributes == {names.RUN_ID: "1", names.ERROR_TYPE: "Timeout"}
    assert span.links == ((CALLER.split("-")[2], "request"),)
    assert span.failed


def test_finished_spans_need_a_recorded_trace_and_an_exporter() -> None:
    telemetry = Telemetry.for_tests()
    telemetry.export([FinishedSpan("run", UNSAMPLED, None, 5, 9)])
    assert not telemetry.spans
    with setup_telemetry("gateway", TelemetrySettings()) as silent:
        silent.export([FinishedSpan("run", ROOT, None, 5, 9)])
        assert not silent.spans


def test_a_span_never_ends_before_it_began() -> None:
    telemetry = Telemetry.for_tests()
    telemetry.export([FinishedSpan("run", ROOT, None, 9, 5)])
    (span,) = telemetry.spans
    assert (span.start_time, span.end_time) == (9, 9)


# HTTP


class App:
    """Answers with a status, or breaks; remembers the span that was current meanwhile."""

    def __init__(self, status: int = 200, error: BaseException | None = None) -> None:
        self.status, self.error = status, error
        self.seen: trace.SpanContext | None = None

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        self.seen = trace.get_current_span().get_span_context()
        if scope.get("matched"):
            scope["route"] = SimpleNamespace(path=scope["matched"])
        if self.error is not None:
            raise self.error
        await send({"type": "http.response.start", "status": self.status})
        await send({"type": "http.response.body", "body": b""})


async def asked(app: App, **scope: Any) -> Telemetry:
    telemetry = Telemetry.for_tests()
    sent: list[object] = []

    async def send(message: object) -> None:
        sent.append(message)

    given = {"type": "http", "path": "/v1/things/7", "method": "GET", "headers": [], **scope}
    traced = TracedApp(app, telemetry, untraced=("/healthz",))
    try:
        await traced(given, None, send)  # type: ignore[arg-type]
    except ZeroDivisionError:
        assert app.error is not None
    return telemetry


async def test_request_has_span_below_its_caller_named_by_its_route() -> None:
    app = App()
    telemetry = await asked(
        app, headers=[(b"traceparent", CALLER.encode())], matched="/v1/things/{id}"
    )
    (span,) = telemetry.spans
    assert span.name == "GET /v1/things/{id}"
    assert traceparent_of(parent_of(span)) == CALLER
    assert span.kind is SERVER
    assert span.attributes == {
        "http.request.method": "GET",
        "http.response.status_code": 200,
        "http.route": "/v1/things/{id}",
    }
    assert span.status.is_unset
    assert app.seen == span.context


@pytest.mark.parametrize("headers", [[], [(b"traceparent", b"\xff\xfe")]])
async def test_a_request_without_a_caller_begins_a_trace(headers: list[Any]) -> None:
    with under(ROOT):  # of the code that started the server
        (span,) = (await asked(App(), headers=headers)).spans
    assert span.parent is None
    assert span.name == "GET"


@pytest.mark.parametrize(("status", "failed"), [(404, False), (499, False), (500, True)])
async def test_only_errors_of_ours_make_a_span_an_error(status: int, failed: bool) -> None:
    (span,) = (await asked(App(status))).spans
    assert (span.status.status_code is trace.StatusCode.ERROR) is failed


async def test_failed_request_has_a_span_without_the_error_text() -> None:
    (span,) = (await asked(App(error=ZeroDivisionError("the password")))).spans
    assert span.attributes["error.type"] == "ZeroDivisionError"
    assert not span.events
    assert "password" not in span.to_json()


async def test_made_up_methods_do_not_become_names() -> None:
    (span,) = (await asked(App(), method="BREW")).spans
    assert span.name == "_OTHER"
    assert "BREW" not in span.to_json()


@pytest.mark.parametrize("scope", [{"path": "/healthz"}, {"type": "lifespan"}])
async def test_health_and_lifespan_have_no_spans(scope: dict[str, str]) -> None:
    app = App()
    assert not (await asked(app, **scope)).spans
    assert app.seen is not None


# SQL


def recorded(text: str, took_s: float = 0, error: Exception | None = None) -> list[ReadableSpan]:
    """Spans of a statement and of the work around it."""
    telemetry = Telemetry.for_tests()
    with telemetry.tracer.start_as_current_span("work"):
        record_query(telemetry, "postgresql", text, took_s, error)
    return telemetry.spans


def test_statement_has_a_span_with_its_first_word_alone() -> None:
    span, work = recorded("select secret from t where id = 'x'", 0.25)
    assert span.name == "SELECT"
    assert parent_of(span).span_id == work.context.span_id
    assert span.attributes == {"db.system.name": "postgresql", "db.operation.name": "SELECT"}
    assert span.end_time - span.start_time == 250_000_000
    assert "secret" not in span.to_json()


def test_a_statement_that_failed_says_with_what() -> None:
    span, _ = recorded("UPDATE t", error=ZeroDivisionError("row of Ada"))
    assert span.attributes["error.type"] == "ZeroDivisionError"
    assert not span.status.is_ok
    assert "Ada" not in span.to_json()


@pytest.mark.parametrize(
    ("text", "name"),
    [(" \n", "QUERY"), (";", "QUERY"), ("begin;", "BEGIN"), ("x" * 99, "X" * 20)],
)
def test_any_statement_has_a_short_name(text: str, name: str) -> None:
    assert recorded(text)[0].name == name


def test_statements_outside_of_recorded_spans_have_none() -> None:
    telemetry = Telemetry.for_tests()
    record_query(telemetry, "postgresql", "SELECT 1", 0)
    with under(ROOT):  # a span that is exported later: the gateway's own statements are not of it
        record_query(telemetry, "postgresql", "SELECT 1", 0)
    assert not telemetry.spans
