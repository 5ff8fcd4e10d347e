"""The A2A agent, served, with real remote agents below it and a scripted model."""

import itertools
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from bos.agent.v1 import TaskMetadata
from bos.common.v1 import Clarification, ClarificationTurn, ClarifyingQuestion
from bos_a2a.service import serve
from bos_a2a.settings import A2aSettings
from bos_testkit.fixtures.agent_harness import AgentHarness, StepOutcome, served_agent
from bos_testkit.scripted_model.replies import Fixture, fixture

NAME = "billing"
NETWORKS = ["127.0.0.0/8"]


class Specialist(AgentHarness):
    """The agent for one remote agent; each of its steps is of another run unless one is named."""

    runs: Iterator[int]

    def execute(
        self,
        task: str = "Do it",
        inputs: Any = None,
        *,
        run: str = "",
        attempt: int = 1,
        **fields: Any,
    ) -> Any:
        """Start a step that may send messages, the one that is given."""
        run = run or f"run-{next(self.runs)}"
        key = f"{run}/0/s"
        metadata = TaskMetadata(user_id="asha", run_id=run, step_key=key, attempt=attempt)
        given = {"tools": ["send_message"], "metadata": metadata}
        if inputs:
            given["tool_name"], inputs = "send_message", {"message": inputs}
        return super().execute(task, inputs, **{**given, **fields})

    async def ask(self, task: str = "Do it", message: str = "", **fields: Any) -> StepOutcome:
        return await self.do(task, message, **fields)


def replied(run: str, question: str, reply: str) -> ClarificationTurn:
    asked = Clarification(questions=[ClarifyingQuestion(question=question)])
    return ClarificationTurn(run_id=run, asked=asked, reply=reply)


def written(task: str, message: str, **reply: str) -> Fixture:
    return fixture(
        f"{task} {message}",
        [task],
        schema="AgentMessage",
        json={"reason": "It can.", "message": message, **reply},
    )


@asynccontextmanager
async def specialist(
    server: Mapping[str, Any], replies: Sequence[Fixture] = (), **settings: Any
) -> AsyncIterator[Specialist]:
    changes = {"refresh_s": 3600, "max_backoff_s": 0.5, **settings}
    servers = {NAME: {"networks": NETWORKS, **server}}
    async with served_agent(
        *(NAME, serve, A2aSettings, *replies), harness=Specialist, servers=servers, **changes
    ) as found:
        found.runs = itertools.count()
        yield found
