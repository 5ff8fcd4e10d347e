"""Bodies of webhook events: whole where they fit, and what is left out is named."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from bos.gateway.v1 import RUN_STATUS_SUCCEEDED, Approval, Run
from bos_gateway.webhooks.payload import approval_requested, run_finished
from bos_gateway.webhooks.signing import signed_headers
from bos_plainjson import plain_json

AT = datetime(2026, 11, 27, 1, 15, tzinfo=UTC)
LIMIT = 65536


def finished(**response: Any) -> Run:
    run = Run(run_id="r1", question="What is new?", status=RUN_STATUS_SUCCEEDED)
    run.response.answer = response.pop("answer", "Nothing.")
    run.response.metadata.agents.append("sql")
    return run


def with_rows(run: Run, count: int) -> Run:
    result = run.response.agent_results.add(agent_name="sql")
    for _ in range(count):
        result.table.rows.add().values.add(decimal_value="13697481.81")
    return run


def event(body: bytes) -> Any:
    assert len(body) <= LIMIT
    return json.loads(body)


def test_a_run_that_fits_is_whole_and_plain() -> None:
    run = with_rows(finished(), 2)
    found = event(run_finished(run, AT, LIMIT))
    assert found == {
        "type": "run.finished",
        "timestamp": "2026-11-27T01:15:00Z",
        "data": {"run_id": "r1", "run": plain_json(run), "omitted": []},
    }
    (result,) = found["data"]["run"]["response"]["agent_results"]
    assert result["table"]["rows"] == [["13697481.81"], ["13697481.81"]]


def test_too_large_results_are_left_out_and_named() -> None:
    run = with_rows(finished(), 20_000)
    data = event(run_finished(run, AT, LIMIT))["data"]
    assert data["omitted"] == ["run.response.agent_results"]
    assert data["run"]["response"]["agent_results"] == []
    assert data["run"]["response"]["answer"] == "Nothing."
    assert len(run.response.agent_results) == 1, "the run itself is left alone"


@pytest.mark.parametrize("text", ["x" * 100_000, "\x01" * 32_000, '"\\' * 40_000, "ü" * 90_000])
def test_however_large_a_run_is_its_id_and_status_are_sent(text: str) -> None:
    run = finished(answer=text)
    run.question = text
    data = event(run_finished(run, AT, LIMIT))["data"]
    assert data["run_id"] == "r1"
    assert data["run"]["status"] == "RUN_STATUS_SUCCEEDED"
    assert "run.response.answer" in data["omitted"]


def test_too_large_approval_names_its_actions() -> None:
    approval = Approval(approval_id="a1", run_id="r1", task_description="Send it.")
    approval.actions.add(tool="mail.send", digest="x" * 100_000)
    data = event(approval_requested(approval, AT, LIMIT))["data"]
    assert data["omitted"] == ["approval.actions"]
    assert data["approval"]["approval_id"] == "a1"
    assert data["approval"]["task_description"] == "Send it."


def test_signature_is_that_of_the_specification() -> None:
    body = json.dumps({"test": 2432232314}).encode()
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    headers = signed_headers(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert headers["webhook-id"] == "msg_p5jXN8AQM9LWM0D4loKWxJek"
    assert headers["webhook-timestamp"] == "1614265330"
    version, _, signature = headers["webhook-signature"].partition(",")
    assert version == "v1"
    assert len(signature) == 44
