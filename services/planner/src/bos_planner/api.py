"""The planner's gRPC face: translation only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bos.planner.v1 import PlannerServiceServicer

if TYPE_CHECKING:
    import grpc

    from bos.planner.v1 import (
        ClassifyInstructionsRequest,
        ClassifyInstructionsResponse,
        MakePlanRequest,
        MakePlanResponse,
    )
    from bos_planner.instructions import InstructionClassifier
    from bos_planner.planner import Planner


class PlannerServicer(PlannerServiceServicer):
    """``bos.planner.v1.PlannerService``; requests are validated before they get here."""

    def __init__(self, planner: Planner, classifier: InstructionClassifier) -> None:
        self._planner = planner
        self._classifier = classifier

    async def MakePlan(
        self, request: MakePlanRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> MakePlanResponse:
        """Plan, or revise a plan."""
        return await self._planner.make_plan(request)

    async def ClassifyInstructions(
        self, request: ClassifyInstructionsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> ClassifyInstructionsResponse:
        """Whether instructions add to a task or take its place."""
        return await self._classifier.classify(request)
