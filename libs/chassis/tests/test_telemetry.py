import json
import logging
import socket

import pytest
from opentelemetry import trace
from prometheus_client import CollectorRegistry

from bos_chassis.metrics import metrics_server
from bos_chassis.settings import TelemetrySettings
from bos_chassis.telemetry import Telemetry, setup_telemetry
from bos_errors import ConfigurationError
from bos_testkit.otlp.spans import span_receiver


def _lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_json_lines_carry_the_trace(capsys: pytest.CaptureFixture[str]) -> None:
    with setup_telemetry("sql", TelemetrySettings()) as telemetry:
        with telemetry.tracer.start_as_current_span("work") as span:
            telemetry.logger("bos.sql").info("query finished", rows=3)
        telemetry.logger("bos.sql").debug("not written at level info")
    (line,) = _lines(capsys)
    assert (line["event"], line["rows"], line["service"]) == ("query finished", 3, "sql")
    assert line["trace_id"] == trace.format_trace_id(span.get_span_context().trace_id)
    assert line["span_id"] == trace.format_span_id(span.get_span_context().span_id)


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_tracebacks_hold_no_local_variables(
    log_format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def work() -> None:
        password = "hun" + "ter2"
        raise ValueError(len(password))

    with setup_telemetry("sql", TelemetrySettings(log_format=log_format)) as telemetry:
        try:
            work()
        except ValueError:
            telemetry.logger("bos.sql").exception("failed")
    text = capsys.readouterr().err
    assert "ValueError" in text
    assert "hunter2" not in text


def test_library_warnings_join_stream_and_leave_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    before = list(logging.getLogger().handlers)
    with setup_telemetry("sql", TelemetrySettings()):
        logging.getLogger("somelib").warning("pool is %s", "full")
        logging.getLogger("somelib").info("chatter")
    (line,) = _lines(capsys)
    assert (line["event"], line["logger"], line["level"]) == ("pool is full", "somelib", "warning")
    assert logging.getLogger().handlers == before


def test_nothing_global_is_set() -> None:
    before = trace.get_tracer_provider()
    with setup_telemetry("sql", TelemetrySettings()):
        assert trace.get_tracer_provider() is before


def test_named_shares_registry_and_spans_but_not_the_name() -> None:
    one = Telemetry.for_tests("one")
    two = one.named("two")
    assert two.registry is one.registry
    for telemetry in (one, two):
        telemetry.tracer.start_span("work").end()
    assert [s.resource.attributes["service.name"] for s in one.spans] == ["one", "two"]
    two.logger("x").info("hello")
    assert one.logs[0]["service"] == "two"


async def test_flush_and_the_end_export_what_waits() -> None:
    with span_receiver() as receiver:
        settings = TelemetrySettings(otlp_endpoint=receiver.endpoint)
        with setup_telemetry("sql", settings) as telemetry:
            telemetry.tracer.start_span("query").end()
            assert await telemetry.flush(60)
            assert [span.name for span in receiver.spans] == ["query"]
            assert await telemetry.flush(60), "nothing waits"
            telemetry.named("planner").tracer.start_span("plan").end()
        exported = [(span.service, span.name) for span in receiver.spans]
    assert exported == [("sql", "query"), ("planner", "plan")]


async def test_flush_returns_false_when_the_collector_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    away = TelemetrySettings(otlp_endpoint=f"http://127.0.0.1:{port}")
    with setup_telemetry("sql", away) as telemetry:
        telemetry.tracer.start_span("query").end()
        assert not await telemetry.flush(60)
        assert not await telemetry.flush(60), "what was refused is gone"


async def test_a_flush_waits_no_longer_than_it_may() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hanging = TelemetrySettings(otlp_endpoint=f"http://127.0.0.1:{silent.getsockname()[1]}")
        with setup_telemetry("sql", hanging) as telemetry:
            telemetry.tracer.start_span("query").end()
            assert not await telemetry.flush(0.01)


async def test_without_a_collector_there_is_nothing_to_flush() -> None:
    with setup_telemetry("sql", TelemetrySettings()) as telemetry:
        assert await telemetry.flush(0.01)


@pytest.mark.parametrize(("ratio", "recorded"), [(0, False), (1, True)])
def test_the_sample_ratio_decides_on_new_traces(ratio: float, recorded: bool) -> None:
    with span_receiver() as receiver:
        settings = TelemetrySettings(trace_sample_ratio=ratio, otlp_endpoint=receiver.endpoint)
        with setup_telemetry("sql", settings) as telemetry:
            assert telemetry.tracer.start_span("work").is_recording() is recorded


def test_spans_are_not_recorded_without_an_exporter() -> None:
    with setup_telemetry("sql", TelemetrySettings()) as telemetry:
        span = telemetry.tracer.start_span("work")
        assert not span.is_recording()
        assert span.get_span_context().is_valid


async def test_a_metrics_port_in_use_is_a_configuration_error() -> None:
    async with metrics_server(CollectorRegistry(), "127.0.0.1", 0) as port:
        with pytest.raises(ConfigurationError, match="METRICS_PORT"):
            async with metrics_server(CollectorRegistry(), "127.0.0.1", port):
                pass


def test_a_library_that_repeats_itself_is_cut_short(capsys: pytest.CaptureFixture[str]) -> None:
    with setup_telemetry("mine", TelemetrySettings()):
        library = logging.getLogger("a.library")
        for number in range(500):
            library.error("complaint %d", number)
        library.error("another matter")
    written = capsys.readouterr().err
    assert "complaint 0" in written
    assert "complaint 499" not in written
    assert "another matter" in written
