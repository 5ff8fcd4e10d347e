"""Outcomes of steps as text for users: failures, skips, blocked actions. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from bos.agent.v1 import AgentExecutionStatus, AgentResult
from bos_errors import AgentErrorType

OVERRIDE_MARKER = "### User Override Instructions"

_SUCCEEDED = AgentExecutionStatus.AGENT_EXECUTION_STATUS_SUCCEEDED
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
    AgentErrorType.QUERY_ERROR: "the database query failed",
    AgentErrorType.HTTP_ERROR: "the API answered with an error",
    AgentErrorType.HTTP_REQUEST_ERROR: "the API could not be reached",
    AgentErrorType.PATH_RESOLUTION_ERROR: "a part of the API's address is not known",
    AgentErrorType.SANDBOX_VIOLATION: "the calculation tried something that is not allowed",
    AgentErrorType.CONFIGURATION_ERROR: "something is not set up",
}
# Why a step that needs approval did not run.
_BLOCKED: dict[str, str] = {
    AgentErrorType.DENIED_BY_USER: "the approval was denied",
    AgentErrorType.HITL_TIMEOUT: "it was not decided in time",
    AgentErrorType.HITL_SKIPPED_NON_STREAMING: "this kind of request cannot ask for approval",
}


def succeeded(result: AgentResult) -> bool:
    """Whether the step succeeded."""
    return result.status == _SUCCEEDED


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
    """Assumptions that ``answer`` does not state, as a sentence; empty if none.

    Assumptions made instead of a clarifying question must be stated, also if the model omits them.
    """
    said = _plain(answer)
    assumed = [" ".join(each.split()).rstrip(".") for r in results for each in r.assumptions]
    missing = [each for each in dict.fromkeys(assumed) if each and _plain(each) not in said]
    return f"This assumes: {'; '.join(missing)}." if missing else ""


def caveats(results: Iterable[AgentResult]) -> list[str]:
    """What checks of the results found, each once, on one line."""
    lines = (safe_line(text) for result in results for text in result.caveats)
    return [line for line in dict.fromkeys(lines) if line]


def unstated_caveats(answer: str, results: Iterable[AgentResult]) -> str:
    """Caveats that ``answer`` does not hold, as text to append; empty if none."""
    said = _plain(answer)
    missing = [text for text in caveats(results) if _plain(text).rstrip(".") not in said]
    if len(missing) < _MIN_LIST:
        return "".join(f"Note: {text}" for text in missing)
    return "\n".join(["Notes:", *(f"- {text}" for text in missing)])


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def block(result: AgentResult) -> str:
    """Notice about a blocked action with reason and remedy; empty if none was blocked."""
    why = _BLOCKED.get(result.error.type)
    if why is None:
        return ""
    actions = [action.summary or action.tool for action in result.proposed_actions]
    what = "; ".join(dict.fromkeys(" ".join(action.split()) for action in actions))
    subject = f'The action "{what}"' if what else f"The action of the {result.agent_name} agent"
    return (
        f"{subject} was blocked: it requires user approval, and {why}. "
        "Please try again via the streaming interface and approve it there."
    )


def reason(result: AgentResult) -> str:
    """Reason why the step has no result, as one sentence; empty if it succeeded."""
    if succeeded(result):
        return ""
    blocked = block(result)
    if blocked:
        return blocked
    kind, message = _KINDS.get(result.error.type, ""), error_text(result)
    details = ": ".join(part for part in (kind, message) if part) or _UNKNOWN
    verb = "was skipped" if status_word(result) == "skipped" else "did not succeed"
    sentence = f"The {result.agent_name} agent {verb}: {details}"
    return sentence if sentence.endswith((".", "!", "?", "…")) else f"{sentence}."
