"""Runs as clients of A2A see them, and what their replies decide."""

import pytest
from a2a.types import a2a_pb2 as a2a
from google.protobuf.json_format import MessageToDict

from bos.agent.v1 import AgentResult, ProposedAction
from bos.common.v1 import (
    AgentError,
    Artefact,
    Clarification,
    ClarifyingQuestion,
    Column,
    ReportSection,
    Row,
    Source,
    Table,
    Value,
)
from bos.gateway.v1 import (
    ActionDisplay,
    Approval,
    ApprovalDisplay,
    OrchestratorResponse,
    Run,
    RunStatus,
)
from bos_conversation import Decision
from bos_protocols.a2a.messages import NamedDecision, Said, decision_in
from bos_protocols.a2a.tasks import Waiting, artifacts_of, task_of

URL = "https://bos.example.org"
DIGEST = "a" * 64


def run(status: RunStatus, response: OrchestratorResponse | None = None, **fields: str) -> Run:
    made = Run(run_id="0197", request_id="m1", question="Who?", status=status, **fields)
    if response is not None:
        response.status, response.run_id = status, "0197"
        made.response.CopyFrom(response)
    return made


def states() -> list[tuple[RunStatus, a2a.TaskState]]:
    return [
        (RunStatus.RUN_STATUS_ACCEPTED, a2a.TASK_STATE_SUBMITTED),
        (RunStatus.RUN_STATUS_PLANNED, a2a.TASK_STATE_WORKING),
        (RunStatus.RUN_STATUS_EXECUTING, a2a.TASK_STATE_WORKING),
        (RunStatus.RUN_STATUS_WAITING_FOR_APPROVAL, a2a.TASK_STATE_WORKING),
        (RunStatus.RUN_STATUS_COMPOSING, a2a.TASK_STATE_WORKING),
        (RunStatus.RUN_STATUS_SUCCEEDED, a2a.TASK_STATE_COMPLETED),
        (RunStatus.RUN_STATUS_PARTIALLY_SUCCEEDED, a2a.TASK_STATE_COMPLETED),
        (RunStatus.RUN_STATUS_FAILED, a2a.TASK_STATE_FAILED),
        (RunStatus.RUN_STATUS_CANCELLED, a2a.TASK_STATE_CANCELED),
        (RunStatus.RUN_STATUS_CLARIFICATION_NEEDED, a2a.TASK_STATE_INPUT_REQUIRED),
    ]


def test_each_status_of_a_run_is_a_state() -> None:
    assert [(status, task_of(run(status), None, URL).status.state) for status, _ in states()] == (
        states()
    )


def test_every_status_has_a_state() -> None:
    known = {status for status, _ in states()} | {RunStatus.RUN_STATUS_UNSPECIFIED}
    assert known == set(RunStatus.values())


def test_a_task_is_named_by_its_run_and_its_conversation() -> None:
    task = task_of(run(RunStatus.RUN_STATUS_ACCEPTED, conversation_id="c"), None, URL)
    assert (task.id, task.context_id) == ("0197", "c")
    (asked,) = task.history
    assert (asked.message_id, asked.role, asked.parts[0].text) == ("m1", a2a.ROLE_USER, "Who?")
    alone = task_of(run(RunStatus.RUN_STATUS_ACCEPTED), None, URL)
    assert alone.context_id == "0197"


def test_an_answer_has_its_sources_its_table_and_the_addresses_of_its_files() -> None:
    response = OrchestratorResponse(
        answer="Ada [1].",
        sources=[Source(title="customers")],
        sections=[ReportSection(heading="Customers", finding="Ada [1].", sources=[1])],
        data=Table(
            columns=[Column(name="amount")], rows=[Row(values=[Value(decimal_value="1.50")])]
        ),
        agent_results=[
            AgentResult(
                files=[Artefact(digest=f"sha256:{DIGEST}", name="a.png", media_type="image/png")]
            )
        ],
    )
    done = run(RunStatus.RUN_STATUS_SUCCEEDED, response)
    answer, table, files = task_of(done, None, URL).artifacts
    assert answer.parts[0].text == "Ada [1]."
    about = MessageToDict(answer.metadata)
    assert about["sources"][0]["title"] == "customers"
    assert about["sections"][0]["heading"] == "Customers"
    assert MessageToDict(table.parts[0].data)["rows"] == [["1.50"]]
    (file,) = files.parts
    assert (file.url, file.filename) == (f"{URL}/v1/runs/0197/files/{DIGEST}", "a.png")


def test_what_failed_has_a_reason_and_no_artifacts() -> None:
    response = OrchestratorResponse(answer="", error=AgentError(message="Nothing was found."))
    task = task_of(run(RunStatus.RUN_STATUS_FAILED, response), None, URL)
    assert task.status.message.parts[0].text == "Nothing was found."
    assert not task.artifacts
    assert not artifacts_of(response, URL)


def test_questions_back_come_as_text_and_as_data() -> None:
    asked = Clarification(questions=[ClarifyingQuestion(question="Which year?", options=["2025"])])
    response = OrchestratorResponse(clarification=asked)
    task = task_of(run(RunStatus.RUN_STATUS_CLARIFICATION_NEEDED, response), None, URL)
    text, data = task.status.message.parts
    assert "Which year?" in text.text
    assert MessageToDict(data.data)["questions"][0]["options"] == ["2025"]


def test_an_answer_to_questions_names_the_task_that_asked() -> None:
    going_on = run(RunStatus.RUN_STATUS_ACCEPTED, continues_run_id="0196")
    task = task_of(going_on, None, URL)
    assert MessageToDict(task.metadata)["continues_task_id"] == "0196"
    assert list(task.history[0].reference_task_ids) == ["0196"]


def waiting(first: bool, actions: int = 1) -> Waiting:
    approval = Approval(
        approval_id="0198",
        actions=[ProposedAction()] * actions,
        display=ApprovalDisplay(actions=[ActionDisplay(title="Send", tool="send_mail")]),
    )
    return Waiting(approval, first)


def test_an_approval_is_shown_whole_or_not_at_all() -> None:
    held = run(RunStatus.RUN_STATUS_WAITING_FOR_APPROVAL)
    shown = task_of(held, waiting(first=True), URL).status
    assert shown.state == a2a.TASK_STATE_INPUT_REQUIRED
    assert shown.message.message_id == "0198"
    assert "send_mail" in shown.message.parts[0].text
    hidden = task_of(held, waiting(first=True, actions=2), URL).status
    assert hidden.state == a2a.TASK_STATE_INPUT_REQUIRED
    (only,) = hidden.message.parts
    assert "send_mail" not in only.text


def test_a_later_approval_says_that_it_has_to_be_named() -> None:
    held = run(RunStatus.RUN_STATUS_WAITING_FOR_APPROVAL)
    later = task_of(held, waiting(first=False), URL).status.message.parts[0].text
    assert "`yes 0198`" in later
    assert "`yes 0198`" not in task_of(held, waiting(first=True), URL).status.message.parts[0].text


YES, NO = Decision(approved=True), Decision(approved=False)
ID = "0197a4b2-1111-7000-8000-000000000001"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("yes", NamedDecision("", YES)),
        ("No.", NamedDecision("", NO)),
        ("", NamedDecision("", NO)),
        (f"yes {ID}", NamedDecision(ID, YES)),
        (f"deny  {ID} ", NamedDecision(ID, NO)),
        ("yes but later", NamedDecision("", Decision(True, "yes but later"))),
        ("no way", NamedDecision("", Decision(True, "no way"))),
        (f"use {ID}", NamedDecision("", Decision(True, f"use {ID}"))),
    ],
)
def test_a_word_decides_and_an_id_behind_it_names(text: str, named: NamedDecision) -> None:
    assert decision_in(Said(text, ())) == named


def test_data_decides_before_words_do() -> None:
    data = {"decision": "deny", "approval_id": ID, "instructions": "left out of a refusal"}
    assert decision_in(Said("yes", (data,))) == NamedDecision(ID, NO)
    more = {"decision": "approve", "instructions": "to staging"}
    assert decision_in(Said("", (more,))) == NamedDecision("", Decision(True, "to staging"))
