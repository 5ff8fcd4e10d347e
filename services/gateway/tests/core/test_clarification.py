"""Replies to clarifying questions are bounded and take over what they leave out."""

import pytest

from bos.agent.v1 import (
    AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION,
    AgentResult,
)
from bos.common.v1 import (
    Clarification,
    ClarificationTurn,
    ClarifyingQuestion,
    ConversationMessage,
)
from bos.gateway.v1 import (
    RUN_STATUS_CLARIFICATION_NEEDED,
    AgentRequest,
)
from bos.runlog.v1 import LogEvent, RunAccepted, RunFinished
from bos_errors import FailedPrecondition, InvalidArgument
from bos_gateway.core.clarification import (
    MAX_REPLY_CHARS,
    ClarificationReply,
    beside_exchanges,
    clarification_limit,
    continued,
    question_of,
    with_inherited,
)

pytestmark = pytest.mark.requirement("D-04")

QUESTION = "How is my dollar value shifting?"
METRIC = ClarifyingQuestion(question="Which metric?", options=["balance", "turnover"])
ASKED = Clarification(questions=[METRIC], assumptions=["The balance is meant."])


def test_a_run_that_is_under_way_cannot_be_replied_to() -> None:
    accepted = RunAccepted(request=AgentRequest(question=QUESTION))
    with pytest.raises(FailedPrecondition, match="has not ended yet"):
        continued(AgentRequest(question="balance"), "r1", accepted, LogEvent(run_accepted=accepted))


def asked_by(clarification: Clarification) -> LogEvent:
    finished = RunFinished()
    finished.response.status = RUN_STATUS_CLARIFICATION_NEEDED
    finished.response.clarification.CopyFrom(clarification)
    return LogEvent(run_finished=finished)


@pytest.mark.parametrize(
    ("chars", "taken"), [(MAX_REPLY_CHARS, True), (MAX_REPLY_CHARS + 1, False)]
)
def test_a_reply_has_a_longest_length(chars: int, taken: bool) -> None:
    accepted = RunAccepted(request=AgentRequest(question=QUESTION))
    reply = AgentRequest(question="x" * chars)
    if taken:
        assert continued(reply, "r1", accepted, asked_by(ASKED)).original_question == QUESTION
        return
    with pytest.raises(InvalidArgument, match=r"request\.question") as raised:
        continued(reply, "r1", accepted, asked_by(ASKED))
    assert str(MAX_REPLY_CHARS) in raised.value.message


def test_what_is_kept_of_questions_without_end_is_bounded() -> None:
    endless = ClarifyingQuestion(question="q" * 10_000, options=["o" * 10_000] * 100)
    asked = Clarification(questions=[endless] * 100, assumptions=["a" * 10_000] * 100)
    accepted = RunAccepted(request=AgentRequest(question=QUESTION))
    found = continued(AgentRequest(question="x"), "r1", accepted, asked_by(asked))
    assert found.clarifications[0].ByteSize() < 24 * 1024


def test_what_a_reply_says_itself_is_not_taken_over() -> None:
    before = AgentRequest(prefer_agents=["sql"], disable_agents=["web"], system_prompt="Be brief.")
    reply = AgentRequest(prefer_agents=["rag"], system_prompt="Be long.", question="x")
    whole = with_inherited(reply, ClarificationReply(before, QUESTION, ()))
    assert (list(whole.prefer_agents), list(whole.disable_agents)) == (["rag"], ["web"])
    assert (whole.question, whole.system_prompt) == ("x", "Be long.")
    before = AgentRequest(max_rows=5, max_columns=6, backend="sales")
    bounded = with_inherited(
        AgentRequest(question="x", max_rows=9), ClarificationReply(before, QUESTION, ())
    )
    assert (bounded.max_rows, bounded.max_columns, bounded.backend) == (9, 6, "sales")
    free = with_inherited(
        AgentRequest(question="x"), ClarificationReply(AgentRequest(), QUESTION, ())
    )
    assert not free.HasField("max_rows")
    assert not free.HasField("max_columns")
    assert with_inherited(reply, None) is reply


def test_clarification_limit_concerns_questions_alone() -> None:
    accepted = RunAccepted(clarification_turn_count=5)
    asks = AgentResult(status=AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION, clarification=ASKED)
    assert clarification_limit(accepted, asks) is None
    accepted.settings.max_clarification_turns = 6
    assert clarification_limit(accepted, asks) is None
    accepted.settings.max_clarification_turns = 5
    assert clarification_limit(accepted, asks) is not None
    assert clarification_limit(accepted, AgentResult(clarification=ASKED)) is None


def test_exchanges_are_not_shown_twice() -> None:
    said = [ConversationMessage(content=run_id, run_id=run_id) for run_id in ("", "r0", "r1")]
    assert beside_exchanges(said, [ClarificationTurn(run_id="r1")]) == said[:2]
    assert beside_exchanges(said, []) == said


def test_the_question_of_a_run_is_the_original_one() -> None:
    accepted = RunAccepted(request=AgentRequest(question="the balance"))
    assert question_of(accepted) == "the balance"
    accepted.original_question = QUESTION
    assert question_of(accepted) == QUESTION
