"""The composer over gRPC, with a scripted model."""

import asyncio
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from bos.common.v1 import Chart, Source, SourceType, TraceEventType
from bos_chassis.values import from_value
from bos_testkit.scripted_model.faults import Knobs
from bos_testkit.scripted_model.wire import count_tokens
from bos_testkit.waiting import eventually

from . import conftest as make

CITING_CHECKED = (
    "Deliveries are due within five days [1]. Later ones are late. The penalty is two percent. "
    "Nothing else is said of it [1], and `days[99]` is code."
)

PLAIN = "Acme leads.\n\n| customer | total_revenue |"
RESULT = TraceEventType.TRACE_EVENT_TYPE_RESULT
ERROR = TraceEventType.TRACE_EVENT_TYPE_ERROR
MESSAGE = TraceEventType.TRACE_EVENT_TYPE_MESSAGE


@pytest.mark.requirement("K-01", "K-07", "K-15", "K-17", "P-08")
async def test_answer_is_streamed_and_complete_in_the_output(rig: Any) -> None:
    wanted = make.request(make.top_customers(sources=[make.document("Ledger")]))
    before = wanted.SerializeToString(deterministic=True)
    rig.model.knobs.chunk_delay_s = 0.01  # pieces that arrive together are one delta
    deltas, output = await rig.compose(wanted)
    assert len(deltas) > 1
    assert "".join(deltas) == output.answer == make.WRITTEN
    assert not output.deterministic
    assert [source.title for source in output.sources] == ["Ledger"]
    assert rig.model.calls == 1
    assert output.usage.model_calls == 1
    assert output.usage.output_tokens > 0
    assert wanted.SerializeToString(deterministic=True) == before
    (event,) = output.trace
    assert (event.type, event.agent) == (RESULT, "composer")
    assert from_value(event.data["deterministic"]) is False
    assert from_value(event.data["input_tokens"]) > 0


async def test_composing_a_table_of_five_costs_at_most_700_tokens(rig: Any) -> None:
    """The request holds all fields of an sql result and the user's date."""
    sql = "SELECT c.customer_name, SUM(i.net_amount) AS revenue FROM invoices AS i LIMIT 5"
    customers = [[f"Mahanadi Mechanical Erectors {n}", Decimal(f"1369748{n}.81")] for n in range(5)]
    found = make.result(
        agent_id="sql_0",
        answer="The query found 5 rows with customer_name, revenue.",
        columns=["customer_name", "revenue"],
        rows=customers,
        data={"sql": sql, "sql_postgres": sql, "sql_server": sql, "sql_sqlite": sql},
        sources=[Source(type=SourceType.SOURCE_TYPE_DATABASE, title="invoices: Sales invoices.")],
    )
    context = {"current_date": "2026-06-15", "current_datetime_utc": "2026-06-15T09:30:00+00:00"}
    _, output = await rig.compose(make.request(found, context=context))
    assert output.usage.input_tokens < 550
    reply = "; ".join(f"{name}: Rs.1,36,97,480.81" for name, _ in customers)
    assert output.usage.input_tokens + count_tokens(reply) < 700


@pytest.mark.requirement("K-03")
async def test_data_is_the_first_table_of_a_successful_agent(rig: Any) -> None:
    failed = make.result(status="failed", columns=["x"], rows=[[1]], error=("QueryError", "no"))
    first, second = make.top_customers(), make.result(columns=["y"], rows=[[2]])
    _, output = await rig.compose(
        make.request(failed, make.result("rag", answer="text"), first, second)
    )
    assert output.data == first.table
    _, output = await rig.compose(make.request(failed))
    assert not output.HasField("data")


@pytest.mark.requirement("K-14")
async def test_highlights_followups_and_charts_pass_unchanged(rig: Any) -> None:
    first = make.top_customers(highlights=["A"], followups=["B?"], charts=[Chart(title="C")])
    second = make.result(highlights=["A", "D"], charts=[Chart(title="E")])
    _, output = await rig.compose(make.request(first, second))
    assert list(output.highlights) == ["A", "A", "D"]
    assert list(output.followups) == ["B?"]
    assert [chart.title for chart in output.charts] == ["C", "E"]


@pytest.mark.requirement("K-10")
async def test_number_in_brackets_is_a_value_without_sources(rig: Any) -> None:
    share = make.result("computation", data={"share_percent": 43.1})
    deltas, output = await rig.compose(make.request(share, question="And what share is that?"))
    assert "".join(deltas) == output.answer == "The share is 43.1 percent, see (7)."


@pytest.mark.requirement("K-10")
async def test_unknown_citations_are_dropped_and_counted(rig: Any) -> None:
    terms = make.document("Terms", reference="c-1", excerpt="within five days")
    found = make.result("rag", answer="Five days [1].", sources=[terms])
    rig.model.knobs.chunk_delay_s = 0.005  # pieces that arrive together are one delta
    deltas, output = await rig.compose(make.request(found, question="How late is too late?"))
    assert len(deltas) > 3
    assert "".join(deltas) == output.answer == CITING_CHECKED
    assert [source.excerpt for source in output.sources] == ["within five days"]
    counted = {
        outcome: rig.telemetry.registry.get_sample_value(
            "bos_composer_citations_total", {"outcome": outcome}
        )
        for outcome in ("known", "unknown")
    }
    assert counted == {"known": 2, "unknown": 5}
    assert from_value(output.trace[-1].data["unknown_citations"]) == 5


async def test_answer_of_unknown_citations_alone_is_no_answer(rig: Any) -> None:
    found = make.result("rag", answer="Five days [1].", sources=[make.document("Terms")])
    deltas, output = await rig.compose(make.request(found, question="Numbers only, please"))
    assert not "".join(deltas).strip()
    assert output.deterministic
    assert output.answer == "Five days [1]."


@pytest.mark.parametrize(
    "fail",
    [
        lambda knobs: knobs.html_next(1, as_content=True),
        lambda knobs: knobs.empty_next(9),
        lambda knobs: knobs.fail_next(9, status=500),
        lambda knobs: knobs.broken_stream_next(9, after_chunks=0),
    ],
    ids=["html content", "nothing", "500", "broken at once"],
)
@pytest.mark.requirement("K-16", "N-10", "Q-04", "Q-08")
async def test_any_failure_of_the_model_has_a_plain_answer(
    rig: Any, fail: Callable[[Knobs], None]
) -> None:
    fail(rig.model.knobs)
    deltas, output = await rig.compose(make.request(make.top_customers()))
    assert not deltas
    assert output.deterministic
    assert output.answer.startswith(PLAIN)
    assert [event.type for event in output.trace] == [ERROR, RESULT]
    assert output.trace[0].message.endswith("put together from the results alone.")
    assert output.HasField("data"), "everything else of the output is there"


async def test_model_is_not_retried_after_an_outage_of_an_agents_model(rig: Any) -> None:
    failed = make.result("rag", status="failed", error=("ModelUnavailable", "It is down."))
    _, output = await rig.compose(make.request(make.top_customers(), failed))
    assert not output.deterministic, "one call is made"
    rig.model.knobs.fail_next(99, status=500)
    once = []
    for status, kind in (
        ("failed", "ModelUnavailable"),
        ("failed", "ModelRateLimited"),
        ("failed", "QueryError"),
        ("failed", "ModelOutputInvalid"),
        ("succeeded", "ModelUnavailable"),
    ):
        before = rig.model.calls
        ended = make.result("rag", status=status, error=(kind, "It went wrong."))
        _, output = await rig.compose(make.request(make.top_customers(), ended))
        assert output.deterministic
        once.append(rig.model.calls - before == 1)
    assert once == [True, True, False, False, False]


async def test_interrupted_stream_leads_to_a_complete_answer(rig: Any) -> None:
    """The output replaces the deltas that were already sent."""
    rig.model.knobs.broken_stream_next(1, after_chunks=20)
    wanted = make.request(make.top_customers(), question="Tell me at length")
    deltas, output = await rig.compose(wanted)
    assert deltas
    assert ("words " * 1000).startswith("".join(deltas))
    assert output.deterministic
    assert output.answer.startswith(PLAIN)


@pytest.mark.parametrize("asked", ["Please echo at once", "Please echo later"])
async def test_echo_of_the_prompt_is_not_answered(rig: Any, asked: str) -> None:
    rig.model.knobs.chunk_delay_s = 0.01
    found = make.top_customers(sources=[make.document("Ledger")])
    deltas, output = await rig.compose(make.request(found, question=asked))
    shown = f"{make.WRITTEN} {make.WRITTEN}\n" if "later" in asked else ""
    assert "".join(deltas) == shown
    assert output.deterministic
    assert output.answer.startswith(PLAIN)
    assert from_value(output.trace[0].data["reason"]) == "MODEL_OUTPUT_INVALID"
    assert "repeated its instructions" in output.trace[0].message
    assert output.usage.model_calls == 1


async def test_slow_model_call_is_abandoned_and_counted(start: Any) -> None:
    rig = await start(model_timeout_s=0.05)
    rig.model.knobs.latency_s = 30
    _, output = await rig.compose(make.request(make.top_customers()))
    assert output.deterministic
    assert from_value(output.trace[0].data["reason"]) == "MODEL_TIMEOUT"
    assert output.usage.unreported_tokens > 0
    assert rig.model.calls == 1, "what took too long is not asked again"


async def test_without_a_model_the_answer_is_deterministic(start: Any) -> None:
    rig = await start(models=False)
    deltas, output = await rig.compose(make.request(make.top_customers()))
    assert not deltas
    assert output.deterministic
    assert output.answer.startswith(PLAIN)
    assert [event.type for event in output.trace] == [MESSAGE, RESULT]
    assert not output.usage.model_calls


async def test_stalled_stream_is_abandoned(start: Any) -> None:
    rig = await start(model_timeout_s=5)
    rig.model.knobs.chunk_delay_s = 0.05  # of a thousand chunks
    wanted = make.request(make.top_customers(), question="Tell me at length")
    deltas, output = await rig.compose(wanted)
    assert deltas
    assert output.deterministic


async def test_overlong_answer_is_truncated(start: Any) -> None:
    rig = await start(max_answer_chars=1000)
    wanted = make.request(question="Tell me at length", token_budget=50_000)
    deltas, output = await rig.compose(wanted)
    shown, said = output.answer.rsplit("\n\n", 1)
    assert "".join(deltas) == output.answer
    assert len(shown) <= 1000
    assert said == "(The answer reached its length limit and is cut off here.)"
    assert from_value(output.trace[-1].data["cut_off"]) is True
    assert output.cut_off
    assert output.usage.model_calls == 1
    assert output.usage.unreported_tokens > 1000, "all that it could have consumed"


@pytest.mark.requirement("K-05")
async def test_the_locale_reaches_prompt_and_answer(start: Any) -> None:
    rig = await start(locale="en_US", currency="USD")
    declared = make.top_customers()
    declared.table.columns[1].unit = "money"
    await rig.compose(make.request(declared))
    assert "| Acme | $175,206.00 |" in rig.model.requests[-1].prompt
    rig.model.knobs.fail_next(9, status=500)
    _, output = await rig.compose(make.request(declared))
    assert "| Acme | $175,206.00 |" in output.answer


async def test_closed_stream_cancels_the_model_call(rig: Any) -> None:
    rig.model.knobs.latency_s = 30
    call = rig.stub.Compose(make.request(make.top_customers()), timeout=60)
    reading = asyncio.ensure_future(call.read())
    await eventually(lambda: rig.model.in_flight == 1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await eventually(lambda: rig.model.abandoned == 1)


async def test_model_is_called_only_within_the_token_budget(rig: Any) -> None:
    result = make.top_customers(sources=[make.document("Ledger")])
    _, output = await rig.compose(make.request(result, token_budget=0))
    assert rig.model.calls == 0
    assert output.answer.startswith(PLAIN)
    assert from_value(output.trace[0].data["reason"]) == "BUDGET_EXHAUSTED"
    _, output = await rig.compose(make.request(result, token_budget=100_000))
    assert output.answer == make.WRITTEN


DENIED = ("denied_by_user", "The approval was denied by you, so this was not done: Mail it.")


@pytest.mark.requirement("Q-09")
async def test_what_was_not_done_stands_above_what_the_model_writes(rig: Any) -> None:
    denied = make.result("mail", status="skipped", error=DENIED)
    deltas, output = await rig.compose(make.request(make.top_customers(), denied))
    assert output.answer == "".join(deltas)
    assert output.answer.startswith(f"{DENIED[1]}\n\nThe top customer brought Rs.1,75,206.00, ")
    assert rig.model.calls == 1
    # Where nothing else happened there is nothing to write.
    _, output = await rig.compose(make.request(denied))
    assert (output.answer, output.deterministic) == (DENIED[1], True)
    assert rig.model.calls == 1
