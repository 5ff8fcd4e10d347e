"""Planning a question without running it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos.gateway.v1 import PlanQuestionResponse, Stage
from bos_chassis.channels import translate_rpc_errors
from bos_chassis.errors import FailedPrecondition
from bos_gateway import context
from bos_gateway.acceptance import continued_by
from bos_gateway.continuing import with_inherited
from bos_gateway.day_budget import DayLimit
from bos_gateway.effects import PLANNER
from bos_gateway.planning import bound_answer, plan_request, usable_problems
from bos_gateway.reaching import answered
from bos_plans import stages

if TYPE_CHECKING:
    from bos.gateway.v1 import AgentRequest
    from bos.planner.v1 import MakePlanRequest, MakePlanResponse
    from bos_gateway.day_budget import DayBudget
    from bos_gateway.effects import Collaborators
    from bos_gateway.runs import Runs


class DryRun:
    """Asks the planner on behalf of a caller who only wants to see the plan.

    Args:
        collaborators: Planner, agents and settings.
        runs: Where the run is that a reply goes on from.
        day: What planning may consume.
    """

    def __init__(self, collaborators: Collaborators, runs: Runs, day: DayBudget) -> None:
        self._with = collaborators
        self._runs = runs
        self._day = day

    async def plan(self, request: AgentRequest, user_id: str) -> PlanQuestionResponse:
        """The plan that the user's request would be run with at this moment.

        Raises:
            InvalidArgument: the request could not be run.
            NotFound: it replies to a run that the user does not have.
            FailedPrecondition: the planner's plan is not valid, or the run asked nothing.
            ResourceExhausted: the tokens of the day are spent.
        """
        settings, registry = self._with.settings, self._with.registry
        cards = registry.require_cards()
        request.DiscardUnknownFields()  # no bound could see into them
        context.check_texts(request)
        continued = await continued_by(request, user_id, self._runs)
        normalised = context.normalise(
            with_inherited(request, continued),
            cards,
            max_context_bytes=settings.max_context_bytes,
            configured=registry.names,
        )
        context.take_secrets(normalised.context, cards)
        context.attach_temporal_context(normalised.context, self._with.clock.now())
        message = plan_request(
            normalised, cards, fallback_agent=settings.fallback_agent, max_steps=settings.max_steps
        )
        if continued is not None:
            message.question = continued.original_question
            message.clarifications.extend(continued.clarifications)
        answer = await self._asked(message, user_id)
        problems = usable_problems(answer, cards, normalised.disable_agents, settings.max_steps)
        if problems:
            raise FailedPrecondition(" ".join(problems), reason="INVALID_PLAN")
        response = PlanQuestionResponse(
            plan=answer.plan,
            decision=answer.decision,
            intent=answer.intent,
            stages=[Stage(step_ids=ids) for ids in stages(answer.plan)],
        )
        if answer.HasField("clarification"):
            response.clarification.CopyFrom(answer.clarification)
        return response

    async def _asked(self, message: MakePlanRequest, user_id: str) -> MakePlanResponse:
        timeout_s = self._with.settings.plan_timeout_s
        token = self._with.tokens.metadata(user_id, "", "", [PLANNER], timeout_s)
        try:
            async with self._day.planning(user_id) as held:
                if held.tokens is not None:
                    message.token_budget = held.tokens
                with translate_rpc_errors():
                    answer = await answered(
                        self._with.planner.MakePlan, message, timeout_s=timeout_s, metadata=token
                    )
                bound_answer(answer, self._with.clock.now())
                held.usage = answer.usage
                return answer
        except DayLimit:
            self._with.metrics.refused.labels("day_limit").inc()
            raise
