"""Planning a question without running it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from bos.gateway.v1 import PlanQuestionResponse, Stage
from bos.planner.v1 import MakePlanRequest
from bos_chassis.channels import translate_rpc_errors
from bos_chassis.errors import FailedPrecondition
from bos_gateway import context
from bos_gateway.effects import PLANNER
from bos_plans import plan_problems, stages

if TYPE_CHECKING:
    from bos.gateway.v1 import AgentRequest
    from bos_gateway.effects import Collaborators


class DryRun:
    """Asks the planner on behalf of a caller who only wants to see the plan."""

    def __init__(self, collaborators: Collaborators) -> None:
        self._with = collaborators

    async def plan(self, request: AgentRequest, user_id: str) -> PlanQuestionResponse:
        """The plan that the user's request would be run with at this moment.

        Raises:
            InvalidArgument: the request could not be run.
            FailedPrecondition: the planner's plan is not valid.
        """
        settings, registry = self._with.settings, self._with.registry
        cards = registry.require_cards()
        normalised = context.normalise(request, cards, max_context_bytes=settings.max_context_bytes)
        context.take_secrets(normalised.context, cards)
        context.attach_temporal_context(normalised.context, datetime.now(UTC))
        plan_request = MakePlanRequest(
            question=normalised.question,
            context=normalised.context,
            prefer_agents=normalised.prefer_agents,
            disable_agents=normalised.disable_agents,
            cards=cards,
            fallback_agent=settings.fallback_agent,
            max_steps=settings.max_steps,
        )
        timeout_s = settings.plan_timeout_s
        token = self._with.tokens.metadata(user_id, "", "", [PLANNER], timeout_s)
        with translate_rpc_errors():
            answer = await self._with.planner.MakePlan(
                plan_request, timeout=timeout_s, metadata=token
            )
        by_name = {card.name: card for card in cards}
        problems = plan_problems(answer.plan, by_name, max_steps=settings.max_steps)
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
