"""Unknown fields: protobuf keeps them, no bound covers them, so the log must drop them."""

from typing import Any

import pytest
from gateway_harness.harness import Client, Harness
from gateway_harness.trials import add_raw, plan_by_question, replica, succeeded

from bos.agent.v1 import AgentResult
from bos.gateway.v1 import (
    RUN_STATUS_SUCCEEDED,
    AgentRequest,
    AskStreamRequest,
    GetRunRequest,
    RunEvent,
    WatchRunRequest,
)
from bos_testkit.plans import step

_NUMBER = 5000


def varint(value: int) -> bytes:
    found = b""
    while value > 127:
        found += bytes([value & 127 | 128])
        value >>= 7
    return found + bytes([value])


def groups(depth: int) -> bytes:
    """Groups inside one another: a reader counts them, though it knows none of them."""
    return varint(_NUMBER << 3 | 3) * depth + varint(_NUMBER << 3 | 4) * depth


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


async def read_by_all(client: Client, request: AskStreamRequest) -> list[RunEvent]:
    """The events of a run that is asked for, watched and shown."""
    events = [message.event async for message in client.stub.AskStream(request, timeout=60)]
    run_id = events[0].run_id
    run = (await client.stub.GetRun(GetRunRequest(run_id=run_id), timeout=20)).run
    assert run.status == RUN_STATUS_SUCCEEDED
    watch = client.stub.WatchRun(WatchRunRequest(run_id=run_id), timeout=20)
    assert [m.event.WhichOneof("event") async for m in watch][-1] == "run_finished"
    return events


async def test_request_with_unknown_fields_leaves_a_readable_log(
    harness: Harness,
) -> None:
    await add_raw(harness, "good")
    plan_by_question(harness, {"deep": [step("a", "good")]})
    inner = AgentRequest(question="deep?").SerializeToString() + groups(98)
    number = AskStreamRequest.DESCRIPTOR.fields_by_name["request"].number
    async with replica(harness) as (_, client, _):
        await read_by_all(client, AskStreamRequest.FromString(field(number, inner)))


@pytest.mark.parametrize("unknown", [groups(97), field(_NUMBER, b"x" * 3_900_000)])
@pytest.mark.requirement("S-12")
async def test_result_with_unknown_fields_leaves_a_readable_log(
    harness: Harness, unknown: bytes
) -> None:
    async def evil(_: Any) -> AgentResult:
        return AgentResult.FromString(succeeded().SerializeToString() + unknown)

    await add_raw(harness, "evil", evil)
    plan_by_question(harness, {"evil": [step(name, "evil") for name in "abc"]})
    async with replica(harness) as (_, client, _):
        events = await read_by_all(
            client, AskStreamRequest(request=AgentRequest(question="evil?", trace=True))
        )
    assert max(event.ByteSize() for event in events) < 100_000
