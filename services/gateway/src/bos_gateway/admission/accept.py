"""From a request to the first event of its run."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING

from bos.common.v1 import TRACE_EVENT_TYPE_MESSAGE
from bos.runlog.v1 import LogEvent, RunAccepted
from bos_chassis.auth import LOCAL_USER
from bos_chassis.credential_forms import MAX_PARTS, TooManyParts
from bos_chassis.errors import AlreadyExists, InvalidArgument, ResourceExhausted
from bos_gateway.admission import normalise
from bos_gateway.admission.context_secrets import DeclaredKeys, take_secrets, told
from bos_gateway.core.budget import MAX_RUN_TOKENS
from bos_gateway.core.clarification import continued, freeze, with_inherited
from bos_gateway.core.shown.masking import Masker
from bos_gateway.core.taint import begins_tainted
from bos_gateway.permits.agents import allowed_names, offered_cards
from bos_gateway.run_log.reader import not_found
from bos_gateway.run_log.records import NewRun
from bos_plans import is_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from bos.gateway.v1 import AgentRequest
    from bos_gateway.admission.context_secrets import Taken
    from bos_gateway.core.clarification import ClarificationReply
    from bos_gateway.effects.context import Deps
    from bos_gateway.run_log.reader import Runs, StoredRun

# A run takes seconds; asking again at once would find the same runs still in work.
_USER_LIMIT_RETRY_S = 2.0


def new_run(
    request: AgentRequest,
    user_id: str,
    run_id: UUID,
    deps: Deps,
    *,
    interactive: bool,
    traceparent: str,
    goes_on_from: ClarificationReply | None = None,
    groups: Iterable[str] = (),
    in_files: Mapping[str, str] = MappingProxyType({}),
) -> tuple[NewRun, Mapping[str, str]]:
    """The run to be stored for a request, and the credentials that must not be in its log.

    Args:
        request: As the client sent it.
        user_id: Whose run it will be.
        run_id: Its id.
        deps: Limits and agents that are frozen into it, the time, and who encrypts what is kept
            of the credentials.
        interactive: Whether somebody follows it and can be asked.
        traceparent: W3C trace context of the request.
        goes_on_from: What it takes over, if it is a reply to clarifying questions.
        groups: Of the user; what they may use is all that the run has.
        in_files: Credentials in files that the request names, by the path in its context.

    Raises:
        InvalidArgument: the request cannot be run; names fields and fixes.
        PermissionDenied: the user may not use any agent.
        Unavailable: no agent has ever answered.
    """
    if not is_duration(request.timeout):
        raise InvalidArgument.field("request.timeout", "is not a duration; 10,000 years at most")
    settings, registry, now = deps.settings, deps.registry, deps.clock.now()
    access, known = deps.access.of(groups), registry.require_cards()
    cards = offered_cards(known, access)
    normalised = normalise.normalise(
        with_inherited(request, goes_on_from),
        cards,
        max_context_bytes=settings.max_context_bytes,
        configured=allowed_names(registry.names, access),
    )
    normalised.request_id = normalised.request_id or str(run_id)
    keys = declared_keys(deps)
    taken = take_secrets(normalised.context, keys, in_files)
    normalise.attach_temporal_context(normalised.context, now)
    accepted = RunAccepted(
        user_id=user_id,
        request=normalised,
        cards=cards,
        settings=settings.run_settings(),
        interactive=interactive,
        traceparent=traceparent,
        unavailable_agents={
            name: why for name, why in registry.unavailable.items() if access.may_use_agent(name)
        },
        secret_keys=sorted(taken.secrets),
        groups=access.groups,
    )
    if taken.paths:
        accepted.trace.add(
            type=TRACE_EVENT_TYPE_MESSAGE,
            agent="gateway",
            message=told(taken.paths),
            create_time=now,
        )
    freeze(accepted, goes_on_from)
    mask_credentials(accepted, taken)
    accepted.tainted = begins_tainted(accepted)
    limit = timedelta(seconds=settings.run_timeout_s)
    if normalised.HasField("timeout"):
        limit = min(limit, normalised.timeout.ToTimedelta())
    if normalised.HasField("max_tokens"):
        most = min(settings.max_run_tokens or MAX_RUN_TOKENS, MAX_RUN_TOKENS)
        accepted.settings.max_tokens = min(most, normalised.max_tokens)
    bounded = user_id != LOCAL_USER  # whoever asks without an account is not one user
    accepted.deadline.FromDatetime(now + limit)
    event = LogEvent(run_accepted=accepted)
    event.create_time.FromDatetime(now)
    run = NewRun(
        run_id=run_id,
        user_id=user_id,
        request_id=normalised.request_id,
        request_digest=normalise.digest(request, keys),
        conversation_id=normalised.conversation_id,
        question=accepted.request.question,
        event=event,
        max_active=settings.max_active_runs_per_user if bounded else 0,
        max_waiting=settings.max_waiting_runs_per_user if bounded else 0,
        sealed=deps.secrets.seal(run_id, taken.secrets),
    )
    return run, taken.secrets


def declared_keys(deps: Deps) -> DeclaredKeys:
    """What is a credential in the context of a request that comes in now."""
    return DeclaredKeys(deps.registry.declaring, deps.settings.secret_context_keys)


def mask_credentials(accepted: RunAccepted, taken: Taken) -> None:
    """Mask what was taken out of the context wherever else the request says it, in place.

    Its ids stay as they are: they are how the run is found again.

    Raises:
        InvalidArgument: They consist of too many texts to be looked for.
    """
    request = accepted.request
    try:
        masker = Masker({**taken.withheld, **taken.secrets})
    except TooManyParts:
        raise InvalidArgument.field(
            "request.context", f"holds credentials of over {MAX_PARTS} texts; send fewer"
        ) from None
    for part in (request.context, *accepted.clarifications, *accepted.trace):
        masker.mask(part)
    request.question = masker.text(request.question)
    request.system_prompt = masker.text(request.system_prompt)
    accepted.original_question = masker.text(accepted.original_question)


async def continued_by(
    request: AgentRequest, user_id: str, runs: Runs
) -> ClarificationReply | None:
    """What the request goes on from; None unless it replies to clarifying questions.

    Raises:
        NotFound: the user has no such run, whether it exists or not.
        FailedPrecondition: the run has not asked anything.
        InvalidArgument: the reply is too long, or names another conversation than the run's.
    """
    if not request.continues_run_id:
        return None
    run_id = await runs.find(request.continues_run_id, user_id)
    of_user = runs.of(user_id)
    first, last = await asyncio.gather(of_user.first_event(run_id), of_user.last_sequence(run_id))
    page = await of_user.events(run_id, last - 1)
    if not page:  # erased meanwhile
        raise not_found(request.continues_run_id)
    return continued(request, str(run_id), first.run_accepted, page[-1][1])


def same_request(known: StoredRun, digest: bytes) -> UUID:
    """The run that a request has started before.

    Raises:
        AlreadyExists: the request id belongs to a request with another body.
    """
    if known.request_digest != digest:
        raise AlreadyExists(
            "This request id was used for another question; choose a new one.",
            reason="REQUEST_ID_REUSED",
        )
    return known.run_id


def user_limit() -> ResourceExhausted:
    """What a user hears who has as many unfinished runs as may be."""
    return ResourceExhausted(
        "You have as many questions in work as one user may have; wait for one of them to end, "
        "cancel one, or decide on the approvals that are waiting.",
        reason="USER_LIMIT",
        retry_after_s=_USER_LIMIT_RETRY_S,
    )
