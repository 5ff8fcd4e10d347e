"""Admission of a question: validated, normalised, stored as a run, or refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from attrs import define

from bos.common.v1 import TRACE_EVENT_TYPE_MESSAGE
from bos.gateway.v1 import AgentRequest
from bos.runlog.v1 import LogEvent, RunAccepted
from bos_chassis.auth.callers import LOCAL_USER
from bos_chassis.credentials.credential_forms import MAX_PARTS, TooManyParts
from bos_chassis.tracing.spans import under
from bos_errors import (
    AlreadyExists,
    BosError,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
)
from bos_gateway.admission import normalise
from bos_gateway.admission.context_secrets import (
    DeclaredKeys,
    Taken,
    named_files,
    removal_message,
    take_secrets,
)
from bos_gateway.admission.daily_quota import DayBudget, DayLimit
from bos_gateway.admission.memory import MemoryClient
from bos_gateway.admission.token_files import in_token_files
from bos_gateway.core.budget import MAX_RUN_TOKENS
from bos_gateway.core.clarification import ClarificationReply, continued, freeze, with_inherited
from bos_gateway.core.shown.masking import Masker
from bos_gateway.core.taint import begins_tainted
from bos_gateway.core.tracing.ids import RunTrace
from bos_gateway.core.tracing.timeline import bare_run_span
from bos_gateway.effects.context import Deps
from bos_gateway.permits.agents import allowed_names, offered_cards
from bos_gateway.run_log.reader import Runs, StoredRun, not_found
from bos_gateway.run_log.records import NewRun
from bos_gateway.run_log.writer import LogWriter, UserLimit
from bos_plans import is_duration
from bos_postgres.audit import By

# A run takes seconds; asking again at once would find the same runs still in work.
_USER_LIMIT_RETRY_S = 2.0


class Asked(NamedTuple):
    """A call that asks a question."""

    request: AgentRequest
    """As the client sent it."""
    user_id: str
    """Whose run it will be."""
    groups: Iterable[str]
    """Of the user; what they may use is all that the run has."""
    interactive: bool
    """Whether a client follows the run, so that its user can be asked."""
    traceparent: str
    """W3C trace context that the run goes on with, or that its own trace links to."""
    own_trace: bool
    """Whether the run has a trace of its own."""
    by: By
    """Who asks, for the audit trail."""


class Repeated(Exception):
    """The request has started a run before; nothing is stored for it."""

    def __init__(self, run_id: UUID) -> None:
        self.run_id = run_id


@define(eq=False)
class Admission:
    """Admission of questions: what is stored as a run, and what is refused."""

    _runs: Runs
    _writer: LogWriter
    _deps: Deps
    _day: DayBudget
    _new_id: Callable[[], UUID]
    _memory: MemoryClient | None = None
    """What is remembered about users; None for nothing."""

    async def check(self, asked: Asked) -> None:
        """Check the bounds of a request, and that it has started no run.

        Raises:
            InvalidArgument: the request cannot be run; names fields and fixes.
            AlreadyExists: the request id belongs to a request with another body.
            Repeated: it has started a run before.
        """
        request, keys = asked.request, declared_keys(self._deps)
        request.DiscardUnknownFields()  # no bound could see into them
        normalise.check_texts(request)
        normalise.check_context(request, self._deps.settings.max_context_bytes)
        digest = normalise.digest(request, keys)
        await self._require_new(request.request_id, asked.user_id, digest)

    async def admit(self, asked: Asked) -> tuple[NewRun, Mapping[str, str]]:
        """The run to be stored for a checked request, and the credentials of its context.

        Raises:
            InvalidArgument: the request cannot be run; names fields and fixes.
            PermissionDenied: the user may not use any agent.
            NotFound: it replies to a run that the user does not have.
            FailedPrecondition: it replies to a run that has not asked anything.
            Unavailable: no agent has ever answered.
        """
        reply = await continued_by(asked.request, asked.user_id, self._runs)
        named = named_files(asked.request.context, declared_keys(self._deps))
        in_files = await in_token_files(self._deps.settings.token_files_folder, named)
        run_id = self._new_id()
        run, secrets = new_run(
            asked.request,
            asked.user_id,
            run_id,
            self._deps,
            interactive=asked.interactive,
            traceparent=asked.traceparent,
            own_trace=asked.own_trace,
            goes_on_from=reply,
            groups=asked.groups,
            in_files=in_files,
        )
        return replace(run, audit=[asked.by.entry("question.asked", str(run_id))]), secrets

    async def recall(self, run: NewRun) -> NewRun:
        """The run with what memory holds of its conversation and user."""
        return run if self._memory is None else await self._memory.opened(run)

    async def store(self, run: NewRun) -> NewRun:
        """Store the first event of a run; returns the run as its day admits it.

        Raises:
            Repeated: another call has stored a run of this request.
            AlreadyExists: the request id belongs to a request with another body.
            ResourceExhausted: the user has too many runs, or a day's tokens are spent.
            BosError: it was not stored.
        """
        refused: BosError = NotFound("The run of this request is gone.")
        bound = ""
        try:
            async with self._day.admitted(run) as run:
                event = await self._runs.cards.without(run.event)
                stored = await self._writer.accept(replace(run, event=event))
        except DayLimit as limit:
            stored, refused, bound = False, limit, "day_limit"
        except UserLimit:
            stored, refused, bound = False, user_limit(), "user_limit"
        if stored:
            if self._memory is not None:
                self._memory.asked(run)
            return run
        await self._require_new(run.request_id, run.user_id, run.request_digest)
        if bound:
            self._deps.metrics.refused.labels(bound).inc()
        raise refused

    @contextmanager
    def tracing(self, run: NewRun) -> Iterator[None]:
        """Trace calls below the run's span, and export that span if the run is not stored."""
        trace = RunTrace.of(str(run.run_id), run.event.run_accepted)
        try:
            with under(None if trace is None else trace.root):
                yield
        except Repeated:
            self._not_stored(run, trace, "REPEATED")
            raise
        except BosError as error:
            self._not_stored(run, trace, error.reason)
            raise

    def _not_stored(self, run: NewRun, trace: RunTrace | None, reason: str) -> None:
        """Export the span of a run that is in no log: calls were made below it."""
        if trace is not None:
            ended_ns = int(self._deps.clock.now().timestamp() * 1e9)
            start_ns = run.event.create_time.ToNanoseconds()
            self._deps.telemetry.export([bare_run_span(trace, start_ns, ended_ns, reason)])

    async def _require_new(self, request_id: str, user_id: str, digest: bytes) -> None:
        known = await self._runs.find_request(user_id, request_id) if request_id else None
        if known is not None:
            raise Repeated(same_request(known, digest))


def new_run(
    request: AgentRequest,
    user_id: str,
    run_id: UUID,
    deps: Deps,
    *,
    interactive: bool,
    traceparent: str,
    own_trace: bool = False,
    goes_on_from: ClarificationReply | None = None,
    groups: Iterable[str] = (),
    in_files: Mapping[str, str] = MappingProxyType({}),
) -> tuple[NewRun, Mapping[str, str]]:
    """Make the run to be stored for a request, and its credentials, which stay out of its log.

    Args:
        request: As the client sent it.
        user_id: Whose run it will be.
        run_id: Its id.
        deps: Limits and agents that are frozen into it, the time, and who encrypts what is kept
            of the credentials.
        interactive: Whether a client follows it, so that its user can be asked.
        traceparent: W3C trace context that it goes on with, or that its own trace links to.
        own_trace: Whether it has a trace of its own.
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
        with_inherited(request, goes_on_from, settings.models),
        cards,
        max_context_bytes=settings.max_context_bytes,
        models=settings.models,
        configured=allowed_names(registry.names, access),
    )
    normalised.request_id = normalised.request_id or str(run_id)
    keys = declared_keys(deps)
    taken = take_secrets(normalised.context, keys, in_files)
    normalise.attach_temporal_context(normalised.context, now, settings.calendar)
    accepted = RunAccepted(
        user_id=user_id,
        request=normalised,
        cards=cards,
        settings=settings.run_settings(),
        interactive=interactive,
        traceparent=traceparent,
        own_trace=own_trace,
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
            message=removal_message(taken.paths),
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
    bounded = user_id != LOCAL_USER  # callers without an account are not one user
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
    """Keys of credentials in request contexts, by settings and cards as they are now."""
    return DeclaredKeys(deps.registry.declaring, deps.settings.secret_context_keys)


def mask_credentials(accepted: RunAccepted, taken: Taken) -> None:
    """Mask removed credentials everywhere else in the request, in place.

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
    """The run and questions that the request replies to; None unless it is a reply.

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
    """Refusal of a user at the limit of unfinished runs."""
    return ResourceExhausted(
        "You have as many questions in work as one user may have; wait for one of them to end, "
        "cancel one, or decide on the approvals that are waiting.",
        reason="USER_LIMIT",
        retry_after_s=_USER_LIMIT_RETRY_S,
    )
