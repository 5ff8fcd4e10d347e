"""gRPC servicer of the planner; translates messages and nothing else."""

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
        """Make a plan, or a revision of one."""
        return await self._planner.make_plan(request)

    async def ClassifyInstructions(
        self, request: ClassifyInstructionsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> ClassifyInstructionsResponse:
        """Classify the instructions of an approval: they add to the task or replace it."""
        return await self._classifier.classify(request)
