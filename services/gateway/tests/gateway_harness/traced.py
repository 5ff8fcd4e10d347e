"""Traces of runs that gateway processes drive, as who receives OTLP has them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from bos_agentkit import Agent
from bos_chassis.telemetry import Telemetry
from bos_testkit.agents import EchoAgent, SlowAgent, agent_server
from bos_testkit.otlp.spans import SeenSpan, Trace
from bos_testkit.plans import step
from bos_testkit.waiting import eventually
from gateway_harness.harness import Harness, gateway_process, kinds
from gateway_harness.streamed import seen_until

RUN, OWN = "invoke_workflow bos", "own run"
EXECUTE = "bos.agent.v1.AgentService/Execute"


@dataclass
class Traced:
    """Spans of gateway processes, by OTLP, beside those of everything in this one."""

    harness: Harness
    receiver: Any
    agents: list[Telemetry] = field(default_factory=list)

    async def add_agent(self, agent: Agent) -> None:
        """Serve an agent whose spans count."""
        telemetry = Telemetry.for_tests(agent.card.name)
        serving = agent_server(agent, telemetry=telemetry)
        address = await self.harness.stack.enter_async_context(serving)
        self.harness.agent_targets[agent.card.name] = address
        self.agents.append(telemetry)

    @property
    def settings(self) -> dict[str, Any]:
        return {"telemetry__otlp_endpoint": self.receiver.endpoint}

    async def trace_of(self, run_id: str) -> Trace:
        """The whole trace of a run, checked, once it has arrived."""

        await eventually(lambda: bool(self.runs(run_id)))
        root = self.runs(run_id)[0]

        def whole() -> Trace:
            own = [self.harness.telemetry, *self.agents]
            here = [SeenSpan.of(span) for telemetry in own for span in telemetry.spans]
            return Trace.all_of([*self.receiver.spans, *here])[root.trace_id]

        # What an agent was asked for ends there, beside the run.
        await eventually(lambda: len(whole().named(EXECUTE)) == len(attempts(whole())))
        trace = whole()
        trace.check()
        return trace

    def runs(self, run_id: str) -> list[SeenSpan]:
        found = [span for span in self.receiver.spans if span.name == RUN]
        return [span for span in found if span.attributes["bos.run.id"] == run_id]


@asynccontextmanager
async def taken_over(traced: Traced) -> AsyncIterator[str]:
    """A run of the steps `quick` and `slow` that has ended; its first owner was killed in `slow`.

    The gateway that took it over runs until the block is left.
    """
    harness, quick, slow = traced.harness, EchoAgent("quick"), SlowAgent("slow")
    await traced.add_agent(quick)
    await traced.add_agent(slow)
    harness.planner.steps = [step("a", "quick"), step("b", "slow", "then", "a")]
    async with gateway_process(harness, **traced.settings) as (process, client):
        seen = await seen_until(client, "step_started", "b")
        await slow.started.wait()
        process.kill()
        await process.wait()
    async with gateway_process(harness, **traced.settings) as (_, client):
        await eventually(lambda: len(slow.inputs) == 2)
        slow.release.set()
        rest = await client.watch(seen[0].run_id, seen[-1].sequence)
        assert kinds(rest)[-1] == "run_finished"
        yield seen[0].run_id


def attempts(trace: Trace, agent: str = "") -> list[SeenSpan]:
    """The gateway's attempts at steps of an agent, or of all, in order of time."""
    found = [
        span
        for span in trace.spans.values()
        if span.service == "gateway" and span.name.startswith(f"invoke_agent {agent}")
    ]
    return sorted(found, key=lambda span: span.start_ns)
