"""Outcomes of steps as text for users: what failed, was not done or is not there. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from bos.agent.v1 import AgentExecutionStatus, AgentResult
from bos.common.v1 import Outcome
from bos_errors import AgentErrorType

OVERRIDE_MARKER = "### User Override Instructions"

_SUCCEEDED = AgentExecutionStatus.AGENT_EXECUTION_STATUS_SUCCEEDED
_SKIPPED = AgentExecutionStatus.AGENT_EXECUTION_STATUS_SKIPPED
# Error types of an agent whose model endpoint failed.
_MODEL_OUTAGES = frozenset({AgentErrorType.MODEL_UNAVAILABLE, AgentErrorType.MODEL_RATE_LIMITED})
_MAX_REASON_CHARS = 400
_MIN_LIST = 2
_CREDENTIALS = re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+@")
_STACK_TRACE = "Traceback (most recent call last)"
_UNKNOWN = "something unexpected went wrong"

# Text per error type; the agent's own message follows.
_KINDS: dict[str, str] = {
    AgentErrorType.PLANNING_DECLINED: "no suitable way to get it was found",
    AgentErrorType.QUERY_ERROR: "no query gave a result",
    AgentErrorType.HTTP_ERROR: "the API answered with an error",
    AgentErrorType.HTTP_REQUEST_ERROR: "the API could not be reached",
    AgentErrorType.PATH_RESOLUTION_ERROR: "a part of the API's address is not known",
    AgentErrorType.SANDBOX_VIOLATION: "the calculation tried something that is not allowed",
    AgentErrorType.CONFIGURATION_ERROR: "something is not set up",
}
# Why the action of a step was not done, where its own message does not say so.
_BLOCKED: dict[str, str] = {
    AgentErrorType.DENIED_BY_USER: "the approval was denied",
    AgentErrorType.HITL_TIMEOUT: "it was not decided in time",
    AgentErrorType.HITL_SKIPPED_NON_STREAMING: "it needs an approval, and this kind of request "
    "cannot ask for one",
}
# Where approvals can be given; for what an approver has decided there is no remedy.
_REMEDIES: dict[str, str] = {
    AgentErrorType.HITL_SKIPPED_NON_STREAMING: "Ask again in the console, with `bos ask` or by a "
    "stream, and approve it there.",
}
# Skips whose message is written by the gateway: whole sentences that name what was not done.
_WHOLE = frozenset(
    {
        *(AgentErrorType.DENIED_BY_USER, AgentErrorType.HITL_TIMEOUT, AgentErrorType.NOT_RUN),
        *(AgentErrorType.HITL_SKIPPED_NON_STREAMING, AgentErrorType.DONE_BEFORE),
        *(AgentErrorType.BUDGET_EXHAUSTED, AgentErrorType.MAX_TURNS_REACHED),
    }
)
_NOT_DONE = frozenset({Outcome.OUTCOME_DENIED, Outcome.OUTCOME_EXPIRED, Outcome.OUTCOME_SKIPPED})
# What a successful result without a text of its own says.
_WITHOUT_TEXT: dict[Outcome, str] = {
    Outcome.OUTCOME_NOT_IN_SOURCE: "The source of the {agent} agent holds nothing of the kind.",
    Outcome.OUTCOME_PREMISE_REFUTED: "What the question takes for granted is not so.",
}
# What is said of a successful result, regardless of its text, if no caveat says it.
_REMARKS: dict[Outcome, str] = {
    Outcome.OUTCOME_PARTLY: "This is a part of the answer only.",
    Outcome.OUTCOME_CUT_OFF: "The answer of the {agent} agent reached its length limit and lacks "
    "its end.",
}


def succeeded(result: AgentResult) -> bool:
    """Whether the step succeeded."""
    return result.status == _SUCCEEDED


def was_not_done(result: AgentResult) -> bool:
    """Whether the step's work was not done, without a failure: denied, expired or skipped."""
    return result.status == _SKIPPED and (
        result.outcome in _NOT_DONE or not result.outcome  # of an older gateway
    )


def outcome_word(result: AgentResult) -> str:
    """The status in lower case, and what came of the step: ``succeeded, not in source``."""
    plain = (Outcome.OUTCOME_UNSPECIFIED, Outcome.OUTCOME_ANSWERED, Outcome.OUTCOME_SKIPPED)
    if result.outcome in plain or result.outcome not in Outcome.values():
        return status_word(result)
    name = Outcome.Name(result.outcome).removeprefix("OUTCOME_").replace("_", " ").lower()
    return f"{status_word(result)}, {name}"


def lacks_an_answer(result: AgentResult) -> bool:
    """Whether a successful step found nothing of the kind, or what is asked to be not so."""
    return succeeded(result) and result.outcome in _WITHOUT_TEXT


def words_without_text(result: AgentResult) -> str:
    """What a successful result says that has no text of its own; mostly nothing."""
    return _WITHOUT_TEXT.get(result.outcome, "").format(agent=result.agent_name)


def remarks(results: Iterable[AgentResult]) -> list[str]:
    """What successful results lack and no caveat of theirs says."""
    said = (
        _REMARKS.get(result.outcome, "").format(agent=result.agent_name)
        for result in results
        if succeeded(result) and not result.caveats
    )
    return [text for text in dict.fromkeys(said) if text]


def not_done(results: Iterable[AgentResult]) -> list[str]:
    """What was not done and why, a sentence each; empty if all was done or failed."""
    return list(dict.fromkeys(reason(result) for result in results if was_not_done(result)))


def met_model_outage(result: AgentResult) -> bool:
    """Whether the step failed because its model's endpoint failed, after all retries."""
    return not succeeded(result) and result.error.type in _MODEL_OUTAGES


def status_word(result: AgentResult) -> str:
    """The status in lower case, such as ``succeeded``."""
    if result.status not in AgentExecutionStatus.values():
        return "unknown"  # of a newer version
    name = AgentExecutionStatus.Name(result.status)
    return name.removeprefix("AGENT_EXECUTION_STATUS_").lower()


def was_overridden(result: AgentResult) -> bool:
    """Whether the instructions of an approval replaced the task."""
    return result.task_overridden or OVERRIDE_MARKER in result.task_description


def error_text(result: AgentResult) -> str:
    """The error's message on one line, with credentials redacted; empty without an error.

    Messages are safe by contract; this also hides the stack trace of an agent that violates it.
    """
    return safe_line(result.error.message) if result.HasField("error") else ""


def safe_line(message: str) -> str:
    """An error message on one line, safe to show to users."""
    if _STACK_TRACE in message:
        return _UNKNOWN
    line = _CREDENTIALS.sub("", " ".join(message.split()))
    return line if len(line) <= _MAX_REASON_CHARS else line[: _MAX_REASON_CHARS - 1] + "…"


def unstated_assumptions(answer: str, results: Iterable[AgentResult]) -> str:
    """Assumptions that ``answer`` does not state, as a sentence; empty if none."""
    said = _plain(answer)
    assumed = [" ".join(each.split()).rstrip(".") for r in results for each in r.assumptions]
    missing = [each for each in dict.fromkeys(assumed) if each and _plain(each) not in said]
    return f"Assumed: {'; '.join(missing)}." if missing else ""


def caveats(results: Iterable[AgentResult]) -> list[str]:
    """What checks of the results found, each once, on one line."""
    lines = (safe_line(text) for result in results for text in result.caveats)
    return [line for line in dict.fromkeys(lines) if line]


def unstated_caveats(answer: str, results: Iterable[AgentResult]) -> str:
    """Caveats and remarks that ``answer`` does not hold, as text to append; empty if none."""
    said, known = _plain(answer), list(results)
    texts = [*caveats(known), *remarks(known)]
    missing = [text for text in texts if _plain(text).rstrip(".") not in said]
    if len(missing) < _MIN_LIST:
        return "".join(f"Note: {text}" for text in missing)
    return "\n".join(["Notes:", *(f"- {text}" for text in missing)])


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def reason(result: AgentResult) -> str:
    """Reason why the step has no result, as one sentence; empty if it succeeded.

    Of an action that was not done it names the action, why, and a remedy if there is one.
    """
    if succeeded(result):
        return ""
    kind, message = _KINDS.get(result.error.type, ""), error_text(result)
    if was_not_done(result):
        said = message if result.error.type in _WHOLE else ""
        said = said or _without_message(result, message)
        return " ".join(filter(None, (_sentence(said), _REMEDIES.get(result.error.type))))
    details = ": ".join(part for part in (kind, message) if part) or _UNKNOWN
    return _sentence(f"The {result.agent_name} agent did not succeed: {details}")


def _without_message(result: AgentResult, message: str) -> str:
    why = _BLOCKED.get(result.error.type)
    if why is None:
        return f"The {result.agent_name} agent was skipped: {message or _UNKNOWN}"
    actions = [action.summary or action.tool for action in result.proposed_actions]
    what = "; ".join(dict.fromkeys(" ".join(action.split()) for action in actions))
    subject = f'The action "{what}"' if what else f"The action of the {result.agent_name} agent"
    return f"{subject} was not done: {why}"


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."
