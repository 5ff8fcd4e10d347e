"""Client of feedback on the answers of the caller's runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos.gateway.v1 import (
    DeleteRunFeedbackRequest,
    FeedbackServiceStub,
    RunFeedback,
    SetRunFeedbackRequest,
)
from bos_client.calling import ServiceClient

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bos.gateway.v1 import FeedbackRating, FeedbackReason, FeedbackServiceAsyncStub


class FeedbackClient(ServiceClient):
    """A client of the gateway for feedback on runs; see :class:`ServiceClient`."""

    async def give(
        self,
        run_id: str,
        rating: FeedbackRating,
        reasons: Sequence[FeedbackReason] = (),
        note: str = "",
    ) -> RunFeedback:
        """Store feedback on a run, in place of an earlier one; returns it as it is stored.

        Raises:
            NotFound: the caller has no such run.
        """
        feedback = RunFeedback(rating=rating, reasons=reasons, note=note)
        request = SetRunFeedbackRequest(run_id=run_id, feedback=feedback)
        stored: RunFeedback = (await self._unary(self._stub.SetRunFeedback, request)).feedback
        return stored

    async def take_back(self, run_id: str) -> None:
        """Delete the feedback on a run, if there is any.

        Raises:
            NotFound: the caller has no such run.
        """
        request = DeleteRunFeedbackRequest(run_id=run_id)
        await self._unary(self._stub.DeleteRunFeedback, request)

    @property
    def _stub(self) -> FeedbackServiceAsyncStub:
        return FeedbackServiceStub(self._channel)
