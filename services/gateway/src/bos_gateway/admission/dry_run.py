"""Dry run: plans a question without running it."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import define

from bos.gateway.v1 import AgentRequest, PlanQuestionResponse, Stage
from bos.planner.v1 import MakePlanResponse
from bos.runlog.v1 import RunAccepted
from bos_errors import BosError
from bos_gateway.admission import normalise
from bos_gateway.admission.accept import continued_by, declared_keys, mask_credentials
from bos_gateway.admission.context_secrets import named_files, take_secrets
from bos_gateway.admission.daily_quota import DayBudget, DayLimit
from bos_gateway.admission.token_files import in_token_files
from bos_gateway.core.clarification import freeze, with_inherited
from bos_gateway.effects.context import PLANNER, Deps
from bos_gateway.effects.plan import ask_planner, plan_by_keywords, plan_request, usable_problems
from bos_gateway.permits.agents import allowed_names, offered_cards
from bos_gateway.run_log.reader import Runs
from bos_plans import stages


@define(eq=False)
class DryRun:
    """Plans a question for a caller without running the plan."""

    _deps: Deps
    _runs: Runs
    """Where the run is that a reply goes on from."""
    _day: DayBudget
    """What planning may consume."""

    async def plan(
        self, request: AgentRequest, user_id: str, groups: Iterable[str] = ()
    ) -> PlanQuestionResponse:
        """The plan that the user's request would get now.

        Raises:
            InvalidArgument: the request could not be run.
            PermissionDenied: the user may not use any agent.
            NotFound: it replies to a run that the user does not have.
            FailedPrecondition: the run asked nothing.
            ResourceExhausted: the tokens of the day are spent.
        """
        settings, registry = self._deps.settings, self._deps.registry
        access, known = self._deps.access.of(groups), registry.require_cards()
        cards = offered_cards(known, access)
        request.DiscardUnknownFields()  # no bound could see into them
        normalise.check_texts(request)
        normalise.check_context(request, settings.max_context_bytes)
        continued = await continued_by(request, user_id, self._runs)
        normalised = normalise.normalise(
            with_inherited(request, continued, settings.models),
            cards,
            max_context_bytes=settings.max_context_bytes,
            models=settings.models,
            configured=allowed_names(registry.names, access),
        )
        keys = declared_keys(self._deps)
        named = named_files(normalised.context, keys)
        in_files = await in_token_files(settings.token_files_folder, named)
        taken = take_secrets(normalised.context, keys, in_files)
        now = self._deps.clock.now()
        normalise.attach_temporal_context(normalised.context, now, settings.calendar)
        accepted = RunAccepted(request=normalised, cards=cards, settings=settings.run_settings())
        freeze(accepted, continued)
        mask_credentials(accepted, taken)
        answer = await self._asked(accepted, user_id)
        return PlanQuestionResponse(
            plan=answer.plan,
            decision=answer.decision,
            intent=answer.intent,
            stages=[Stage(step_ids=ids) for ids in stages(answer.plan)],
            clarification=answer.clarification if answer.HasField("clarification") else None,
        )

    async def _asked(self, accepted: RunAccepted, user_id: str) -> MakePlanResponse:
        """The planner's plan; one by keywords where a run would get that."""
        settings = self._deps.settings
        timeout_s = settings.plan_timeout_s
        token = self._deps.tokens.metadata(user_id, "", "", [PLANNER], timeout_s)
        try:
            async with self._day.planning(user_id) as held:
                request = plan_request(accepted, settings.max_steps, held.tokens, None)
                try:
                    answer = await ask_planner(self._deps, request, timeout_s, token)
                except BosError as error:
                    return plan_by_keywords(request, error.message)
                held.usage = answer.usage
        except DayLimit:
            self._deps.metrics.refused.labels("day_limit").inc()
            raise
        problems = usable_problems(answer, accepted, settings.max_steps)
        return plan_by_keywords(request, " ".join(problems)) if problems else answer
