"""Replies to clarifying questions: what a run inherits from the run that asked.

The reply is a run of its own. Everything it depends on of the other one is frozen into its first
event, so that each adopter knows the same, whether conversations are kept or not. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from bos.agent.v1 import AgentResult
from bos.common.v1 import Clarification, ClarificationTurn, ClarifyingQuestion, ConversationMessage
from bos.gateway.v1 import RUN_STATUS_CLARIFICATION_NEEDED, AgentRequest, RunStatus
from bos.runlog.v1 import LogEvent, RunAccepted
from bos_errors import FailedPrecondition, FieldViolation, InvalidArgument
from bos_gateway.core.run_state import NEEDS_CLARIFICATION

FIELD = "request.continues_run_id"
NOT_ASKING = "NOT_WAITING_FOR_REPLY"
"""Reason of the refusal of a reply to a run that asked nothing."""

MAX_REPLY_CHARS = 8192
# What is kept of questions that agents made as long as they liked: all rounds fit into one event.
_MAX_QUESTIONS = 8
_MAX_OPTIONS = 8
_MAX_ASSUMPTIONS = 8
_MAX_TEXT_CHARS = 500
_MAX_OPTION_CHARS = 200
# Shapes a run as much as the question does, so a reply need not say it again.
_INHERITED = (
    *("prefer_agents", "disable_agents", "system_prompt"),
    *("max_rows", "max_columns", "backend", "model"),
)


@dataclass(frozen=True, slots=True)
class ClarificationReply:
    """The run, questions and exchanges that a reply continues."""

    request: AgentRequest
    """Of the run that asked, as it was accepted."""
    original_question: str
    clarifications: tuple[ClarificationTurn, ...]
    """Every exchange, this reply included, oldest first."""


def continued(
    request: AgentRequest, run_id: str, accepted: RunAccepted, last: LogEvent
) -> ClarificationReply:
    """The run, questions and exchanges that a reply continues.

    Args:
        request: The reply.
        run_id: The run that it replies to.
        accepted: That run's first event.
        last: Its latest one.

    Raises:
        FailedPrecondition: the run has not asked anything.
        InvalidArgument: the reply is too long, or names another conversation than the run's.
    """
    asked = _asked(last)
    if len(request.question) > MAX_REPLY_CHARS:
        raise InvalidArgument.field(
            "request.question",
            f"holds {len(request.question)} characters; a reply to clarifying questions may have "
            f"{MAX_REPLY_CHARS}. Shorten it, or ask anew without continues_run_id.",
        )
    conversation_id = accepted.request.conversation_id
    if request.conversation_id not in ("", conversation_id):
        raise InvalidArgument.field(
            "request.conversation_id",
            "is not that of the run in continues_run_id; leave it out, and the reply belongs to "
            "that run's conversation",
        )
    turn = ClarificationTurn(
        run_id=run_id,
        asked=asked,
        reply=request.question,
        tainted=last.run_finished.response.tainted,  # as is all that comes of a tainted run
    )
    return ClarificationReply(
        accepted.request, question_of(accepted), (*accepted.clarifications, turn)
    )


def with_inherited(
    request: AgentRequest, continued: ClarificationReply | None, models: Collection[str] = ()
) -> AgentRequest:
    """The request, completed by what the run that it continues had.

    The dates come along, so "today" stays the day that the questions spoke of. Credentials do not:
    no log has them. Nor does a model outside of ``models``: it is no longer offered, and the reply
    did not ask for it.
    """
    if continued is None:
        return request
    before = continued.request
    whole = AgentRequest(conversation_id=before.conversation_id, context=before.context)
    for name in _INHERITED:
        if not getattr(request, name) and getattr(before, name):
            whole.MergeFrom(AgentRequest(**{name: getattr(before, name)}))
    if whole.model not in models:
        whole.model = ""
    whole.MergeFrom(request)
    return whole


def freeze(accepted: RunAccepted, continued: ClarificationReply | None) -> None:
    """Freeze the continued run's questions and exchanges into the first event."""
    if continued is None:
        return
    accepted.original_question = continued.original_question
    accepted.clarifications.extend(continued.clarifications)
    accepted.clarification_turn_count = len(continued.clarifications)


def question_of(accepted: RunAccepted) -> str:
    """The question that the run is about: in a reply's run, the original one."""
    return accepted.original_question or accepted.request.question


def clarification_limit(accepted: RunAccepted, result: AgentResult) -> str | None:
    """Why an agent's questions are not shown to the user any more; None if they are."""
    asks = result.status == NEEDS_CLARIFICATION
    return questions_limit(accepted, result.clarification) if asks else None


def questions_limit(accepted: RunAccepted, asked: Clarification) -> str | None:
    """The same of questions that are asked."""
    limit, taken = accepted.settings.max_clarification_turns, accepted.clarification_turn_count
    if not limit or taken < limit:
        return None
    questions = " ".join(each.question for each in _cut(asked).questions)
    return (
        f"The question is still unclear after {taken} rounds of questions. Ask it anew and settle: "
        f"{questions}"
    )


def beside_exchanges(
    history: Iterable[ConversationMessage], clarifications: Iterable[ClarificationTurn]
) -> list[ConversationMessage]:
    """The messages that are not part of the exchanges, which are shown by themselves."""
    runs = {turn.run_id for turn in clarifications}
    return [message for message in history if message.run_id not in runs]


def _asked(last: LogEvent) -> Clarification:
    """What the run with this last event asked.

    Raises:
        FailedPrecondition: nothing.
    """
    if not last.HasField("run_finished"):
        raise _refused("has not ended yet; wait for its questions, or ask without this field")
    response = last.run_finished.response
    if response.status != RUN_STATUS_CLARIFICATION_NEEDED:
        status = RunStatus.Name(response.status).removeprefix("RUN_STATUS_")
        raise _refused(
            f"names a run that ended with {status}; only one that ended with CLARIFICATION_NEEDED "
            "can be replied to. To follow up an answer, leave this out and name conversation_id."
        )
    return _cut(response.clarification)


def _refused(description: str) -> FailedPrecondition:
    error = FailedPrecondition(f"{FIELD}: {description}", reason=NOT_ASKING)
    error.violations = (FieldViolation(FIELD, description),)
    return error


def _cut(asked: Clarification) -> Clarification:
    """The questions within bounds: prompts and the log's first event have to hold them."""
    return Clarification(
        questions=[
            ClarifyingQuestion(
                question=each.question[:_MAX_TEXT_CHARS],
                options=[option[:_MAX_OPTION_CHARS] for option in each.options[:_MAX_OPTIONS]],
            )
            for each in asked.questions[:_MAX_QUESTIONS]
        ],
        assumptions=[each[:_MAX_TEXT_CHARS] for each in asked.assumptions[:_MAX_ASSUMPTIONS]],
    )
