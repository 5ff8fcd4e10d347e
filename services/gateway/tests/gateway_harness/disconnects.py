"""Clients that ask, see some of what happens, and drop the stream."""

from bos.gateway.v1 import RunEvent
from bos_testkit.agents import SlowAgent
from gateway_harness.harness import Client


async def seen_until(
    client: Client, kind: str, step_id: str = "", question: str = "Go on?"
) -> list[RunEvent]:
    """The events up to the first of this kind, of this step if one is named."""
    seen: list[RunEvent] = []
    call = client.stream(question)
    try:
        async for message in call:
            seen.append(message.event)
            named = getattr(message.event, kind)
            if message.event.HasField(kind) and (not step_id or named.step_id == step_id):
                break
    finally:
        call.cancel()
    return seen


async def run_under_way(client: Client, slow: SlowAgent) -> str:
    """The id of a run whose slow step was started, and has reached its agent."""
    seen = await seen_until(client, "step_started")
    await slow.started.wait()
    return seen[0].run_id
