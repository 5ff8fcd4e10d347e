"""A verified query of a user, from an agent that says that it has run one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos.common.v1 import DatabaseQuery
from bos.gateway.v1 import CreateVerifiedQueryRequest, VerifiedQueryServiceStub
from bos_testkit.agents import FileAgent

if TYPE_CHECKING:
    import grpc

    from bos.agent.v1 import AgentResult
    from bos_agentkit import AgentTask


class QueryingFileAgent(FileAgent):
    """Succeeds with files, and with a query that they rest on."""

    async def behave(self, task: AgentTask) -> AgentResult:
        """Attach the files and name the query."""
        result = await super().behave(task)
        query = DatabaseQuery(database="company", dialect="postgres", sql="SELECT 1 FROM plans")
        query.tables.append("plans")
        result.query.CopyFrom(query)
        return result


async def give_verified_query(channel: grpc.aio.Channel, token: str, run_id: str) -> str:
    """The id of a new one, made of a run with a step of that agent."""
    made = await VerifiedQueryServiceStub(channel).CreateVerifiedQuery(
        CreateVerifiedQueryRequest(run_id=run_id),
        metadata=(("authorization", f"Bearer {token}"),),
    )
    return made.verified_query.query_id
