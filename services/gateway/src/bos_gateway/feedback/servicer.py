"""FeedbackService: translates between gRPC and the feedback of the caller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import define

from bos.gateway import v1 as gateway

if TYPE_CHECKING:
    from collections.abc import Callable

    from bos_gateway.feedback.stored import Feedback

SERVICE_NAME = "bos.gateway.v1.FeedbackService"


@define(eq=False)
class FeedbackServicer(gateway.FeedbackServiceServicer):
    """Implements ``bos.gateway.v1.FeedbackService``."""

    _feedback: Feedback
    _caller: Callable[[], str]
    """The caller's user id; refuses callers that are no users."""

    async def SetRunFeedback(
        self, request: gateway.SetRunFeedbackRequest, context: Any
    ) -> gateway.SetRunFeedbackResponse:
        """Store feedback on one of the caller's runs."""
        stored = await self._feedback.store(request.run_id, request.feedback, self._caller())
        return gateway.SetRunFeedbackResponse(feedback=stored)

    async def DeleteRunFeedback(
        self, request: gateway.DeleteRunFeedbackRequest, context: Any
    ) -> gateway.DeleteRunFeedbackResponse:
        """Take back the feedback on one of the caller's runs."""
        await self._feedback.take_back(request.run_id, self._caller())
        return gateway.DeleteRunFeedbackResponse()
