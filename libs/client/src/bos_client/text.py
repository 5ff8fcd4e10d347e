"""Values, times and states as text. Everything from outside is made harmless for a terminal."""

from __future__ import annotations

import json
import re
import unicodedata
from datetime import UTC
from typing import TYPE_CHECKING

from bos.agent.v1 import AgentExecutionStatus
from bos.common.v1 import Outcome
from bos.gateway.v1 import ApprovalStatus, RunStatus

if TYPE_CHECKING:
    from google.protobuf.duration_pb2 import Duration
    from google.protobuf.timestamp_pb2 import Timestamp

    from bos.agent.v1 import AgentResult
    from bos.common.v1 import Artefact, Usage, Value
    from bos.gateway.v1 import OrchestratorResponse

# Control characters could move the cursor, change colours or worse; tab and newline may stay.
_CONTROLS = dict.fromkeys([*range(0x20), 0x7F, *range(0x80, 0xA0)])
del _CONTROLS[ord("\t")], _CONTROLS[ord("\n")]
# Not seen, or moving what is: by Unicode's categories, and fillers that count as something else.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_FILLERS = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\ufffc"
    "\U00016fe4\U0001d159\U000e0000-\U000e0fff]|[^\\S ]"
)
_KIB = 1024
_JOINERS = frozenset("\u200c\u200d")
ONE_LINE = {**_CONTROLS, ord("\n"): " ", ord("\t"): " "}


def clean(text: str) -> str:
    """``text`` without control characters but tab and newline."""
    return text.translate(_CONTROLS)


def as_it_is(text: str) -> str:
    """``text`` with escapes for all that is not seen, or that changes how the rest is shown.

    For what an approver sees: nothing of it may vanish, or stand elsewhere than where it is read.
    The gateway sends it so already; this is what holds with any other.
    """
    return "".join(
        f"\\u{{{ord(each):X}}}"
        if unicodedata.category(each) in _HIDDEN or _FILLERS.fullmatch(each)
        else each
        for each in text
    )


def visible(text: str, limit: int = 0) -> str:
    """A name as :func:`as_it_is` has it, cut off at ``limit`` characters unless that is 0."""
    shown = as_it_is(text)
    return shown if not limit or len(shown) <= limit else shown[: limit - 1] + "…"


def passage_text(text: str, limit: int = 0) -> str:
    """Text that others wrote, on one line and without what is not seen or moves what is.

    Joiners stay: some languages are not written without them.
    """
    line = "".join(
        each
        for each in " ".join(text.split())
        if each in _JOINERS or unicodedata.category(each) not in _HIDDEN
    )
    return line if not limit or len(line) <= limit else line[: limit - 1] + "…"


def one_line(text: str, limit: int = 0) -> str:
    """``text`` on one line, cut off at ``limit`` characters unless that is 0."""
    line = text.translate(ONE_LINE).strip()
    return line if not limit or len(line) <= limit else line[: limit - 1] + "…"


def value_text(value: Value) -> str:
    """A cell as people read it; numbers exactly as they are stored."""
    match value.WhichOneof("kind"):
        case None | "null_value":
            return ""
        case "bool_value":
            return "true" if value.bool_value else "false"
        case "int64_value":
            return str(value.int64_value)
        case "double_value":
            return repr(value.double_value).removesuffix(".0")
        case "decimal_value":
            return value.decimal_value
        case "string_value":
            return value.string_value
        case "bytes_value":
            return f"<{len(value.bytes_value)} bytes>"
        case "date_value":
            date = value.date_value
            return f"{date.year:04}-{date.month:02}-{date.day:02}"
        case "timestamp_value":
            return time_text(value.timestamp_value)
        case _:
            return json.dumps(_plain(value), ensure_ascii=False)


def _plain(value: Value) -> object:
    match value.WhichOneof("kind"):
        case "list_value":
            return [_plain(item) for item in value.list_value.values]
        case "map_value":
            return {name: _plain(item) for name, item in sorted(value.map_value.fields.items())}
        case "bool_value":
            return value.bool_value
        case "int64_value":
            return value.int64_value
        case None | "null_value":
            return None
        case _:
            return value_text(value)


def size_text(size_bytes: int) -> str:
    """A size for people."""
    if size_bytes < _KIB:
        return f"{size_bytes} bytes"
    if size_bytes < _KIB * _KIB:
        return f"{size_bytes / _KIB:.1f} KiB"
    return f"{size_bytes / _KIB / _KIB:.1f} MiB"


def time_text(time: Timestamp) -> str:
    """A point in time in UTC, to the second."""
    return time.ToDatetime(UTC).strftime("%Y-%m-%d %H:%M:%S")


def clock_text(time: Timestamp) -> str:
    """The time of day in UTC, to the millisecond."""
    return time.ToDatetime(UTC).strftime("%H:%M:%S.%f")[:-3]


def usage_text(usage: Usage) -> str:
    """What models consumed, such as ``3 model calls, 1200 tokens, $0.0042``; empty if nothing."""
    if not (usage.model_calls or usage.unreported_tokens or usage.abandoned_calls):
        return ""
    parts = [
        f"{usage.model_calls} model call{'' if usage.model_calls == 1 else 's'}",
        f"{usage.input_tokens + usage.output_tokens} tokens",
    ]
    if usage.cached_input_tokens:
        parts[-1] += f" ({usage.cached_input_tokens} of them cached)"
    if usage.abandoned_calls:
        plural = "" if usage.abandoned_calls == 1 else "s"
        parts.append(f"{usage.abandoned_calls} call{plural} given up")
    if usage.unreported_tokens:
        parts.append(f"up to {usage.unreported_tokens} more of calls that were cut off")
    if usage.cost_micros:
        parts.append(f"${usage.cost_micros / 1_000_000:.4f}")
    return ", ".join(parts)


def duration_text(duration: Duration) -> str:
    """A duration such as ``340 ms`` or ``2.1 s``."""
    return seconds_text(duration.ToNanoseconds() / 1e9)


def seconds_text(seconds: float) -> str:
    """Seconds such as ``340 ms`` or ``2.1 s``."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def run_status_text(status: RunStatus) -> str:
    """Such as ``partially succeeded``."""
    return _words(RunStatus.Name(status), "RUN_STATUS_")


def approval_status_text(status: ApprovalStatus) -> str:
    """Such as ``timed out``."""
    return _words(ApprovalStatus.Name(status), "APPROVAL_STATUS_")


def step_status_text(status: AgentExecutionStatus) -> str:
    """Such as ``needs clarification``."""
    return _words(AgentExecutionStatus.Name(status), "AGENT_EXECUTION_STATUS_")


def outcome_name(outcome: Outcome) -> str:
    """Such as ``NOT_IN_SOURCE``; empty for none, and for one of a newer version."""
    known = outcome and outcome in Outcome.values()
    return Outcome.Name(outcome).removeprefix("OUTCOME_") if known else ""


def outcome_text(outcome: Outcome) -> str:
    """Such as ``not in source``; empty likewise."""
    return _words(outcome_name(outcome), "")


def run_end_text(response: OrchestratorResponse) -> str:
    """How a run ended: what came of it, or its status where that says all."""
    status = run_status_text(response.status)
    plain = response.outcome in (Outcome.OUTCOME_UNSPECIFIED, Outcome.OUTCOME_ANSWERED)
    return status if plain else outcome_text(response.outcome) or status


def step_end_text(result: AgentResult) -> str:
    """How a step ended: what came of it, or its status where that says all."""
    status = step_status_text(result.status)
    plain = (Outcome.OUTCOME_UNSPECIFIED, Outcome.OUTCOME_ANSWERED, Outcome.OUTCOME_SKIPPED)
    return status if result.outcome in plain else outcome_text(result.outcome) or status


def _words(name: str, prefix: str) -> str:
    return name.removeprefix(prefix).replace("_", " ").lower()


def files_of(response: OrchestratorResponse) -> list[Artefact]:
    """The files that the steps of a run made, in planner order, each once."""
    found = {
        (file.name, file.digest): file for result in response.agent_results for file in result.files
    }
    return list(found.values())
