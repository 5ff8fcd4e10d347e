"""A run as its client saw it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bos.agent.v1 import AgentResult
    from bos.gateway.v1 import OrchestratorResponse, RunEvent
    from bos.planner.v1 import Plan


@dataclass(frozen=True)
class SeenRun:
    """The events of one run, from the first to the last, and what is in them."""

    events: Sequence[RunEvent]

    @property
    def kinds(self) -> list[str]:
        """What happened, in order."""
        return [str(event.WhichOneof("event")) for event in self.events]

    @property
    def response(self) -> OrchestratorResponse:
        """What the run ended with."""
        return self.events[-1].run_finished.response

    @property
    def plan(self) -> Plan:
        """The plan of a run that was planned once.

        Raises:
            ValueError: it was planned never, or again.
        """
        (planned,) = (event.planned for event in self.events if event.HasField("planned"))
        return planned.plan

    @property
    def results(self) -> dict[str, AgentResult]:
        """Results by step id, in the order in which the steps ended."""
        ended = [event.step_finished for event in self.events if event.HasField("step_finished")]
        return {each.step_id: each.result for each in ended}

    def at(self, kind: str, step_id: str) -> int:
        """Position of the event of this kind about the step.

        Raises:
            ValueError: there is none, or more than one.
        """
        (position,) = (
            index
            for index, event in enumerate(self.events)
            if event.WhichOneof("event") == kind and getattr(event, kind).step_id == step_id
        )
        return position
