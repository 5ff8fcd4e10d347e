"""Error replies of model endpoints, classified: pure functions from status and body to a verdict.

Endpoints agree on statuses at most. Codes, types and words differ, and some send HTTP 200 with an
error inside; all of them are judged here. The words serve to recognise an error and are never
repeated: they may hold keys or prompts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bos_errors import BosError, InvalidArgument
from bos_llm.endpoints.capabilities import SETTINGS, named_parameter
from bos_llm.endpoints.retry import Verdict
from bos_llm.errors import (
    ModelNotConfigured,
    ModelRateLimited,
    ModelRefused,
    ModelRequestRejected,
    ModelUnavailable,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from bos_llm.agent_config import Access
    from bos_llm.endpoints import keys
    from bos_llm.endpoints.error_reply import Refusal

_RETRYABLE_STATUS: Final = frozenset((408, 409))
# A gateway that gave up on the model may leave it working.
_TIMED_OUT: Final = frozenset((408, 502, 504))


def key_trouble(refusal: Refusal) -> keys.Refusal | None:
    """Why the endpoint does not want this key; None if the key is not the reason."""
    if refusal.status in (401, 403) and not refusal.filtered:
        return "rejected"
    if refusal.used_up:
        return "quota"
    return "rate_limited" if refusal.status == 429 else None


def judge_refusal(refusal: Refusal, access: Access, sent: Collection[str] = ()) -> Verdict:
    """Classify an error reply to a call.

    Args:
        refusal: The reply.
        access: Which endpoint, for its name and its variables.
        sent: Parameters of the request, of which the endpoint may not take one.
    """
    status, name = refusal.status, f"The model endpoint ({access.provider})"
    metadata = {"http_status": str(status)}
    wait = refusal.retry_after_s
    if refusal.used_up or status == 429:
        what = "has no quota or credit left" if refusal.used_up else "admits no more calls for now"
        limited = ModelRateLimited(f"{name} {what}.", metadata=metadata, retry_after_s=wait)
        return Verdict(limited, retryable=not refusal.used_up, retry_after_s=wait, turned_away=True)
    if status in _RETRYABLE_STATUS or status >= 500:
        what = "is still loading the model" if refusal.loading else "failed"
        reason = "MODEL_LOADING" if refusal.loading else None
        failed = ModelUnavailable(
            f"{name} {what}.", reason=reason, metadata=metadata, retry_after_s=wait
        )
        return Verdict(
            failed,
            retryable=True,
            retry_after_s=wait,
            turned_away=status not in _TIMED_OUT,
            # One that says when to come back knows what it is doing.
            endpoint_failed=not refusal.loading and wait is None,
        )
    error = _final(refusal, access, name, metadata, sent)
    return Verdict(error, retryable=False, turned_away=True)


def _final(
    refusal: Refusal,
    access: Access,
    name: str,
    metadata: dict[str, str],
    sent: Collection[str],
) -> BosError:
    """The error of a request that would be refused again."""
    if refusal.filtered:
        return ModelRefused("A content filter declined the request.", metadata=metadata)
    if refusal.status in (401, 403):
        text = f"{name} refused the key. Check {access.key_variable}."
        if access.managed_identity:
            text = (
                f"{name} refused the managed identity. Give it the role Cognitive Services "
                "OpenAI User on the resource in AZURE_OPENAI_ENDPOINT."
            )
        return ModelNotConfigured(text, reason="MODEL_KEY_REJECTED", metadata=metadata)
    if refusal.unknown_model:
        text = (
            f"{name} does not know the model or the path. "
            f"Check BOS_MODEL (or <AGENT>_MODEL) and {access.url_variable}."
        )
        return ModelNotConfigured(text, reason="MODEL_NOT_FOUND", metadata=metadata)
    if refusal.too_long:
        return InvalidArgument.field(
            "messages",
            f"too long for the model ({access.provider}); shorten the input, give the server a "
            "larger context, or set BOS_MODEL_MAX_REPLY_TOKENS to a smaller number",
        )
    parameter = named_parameter(refusal, sent)
    if parameter is not None:
        metadata["parameter"] = parameter
        return ModelRequestRejected(
            f"{name} does not accept the parameter {parameter}; {SETTINGS[parameter]} "
            "(or take it out of BOS_MODEL_EXTRA_BODY).",
            metadata=metadata,
        )
    return ModelRequestRejected(
        f"{name} does not accept this request. Check BOS_MODEL_EXTRA_BODY and "
        "BOS_MODEL_PROVIDER, or see what `bos doctor --model` finds.",
        metadata=metadata,
    )
