"""Strangers flood a service; honest callers are let in, probes are answered, memory is bounded.

`make test-floods` does the same with a thousand connections, and measures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
import pytest
from floods import FLOODS, Flood, flooding

if TYPE_CHECKING:
    from flood_targets import Target

pytestmark = [
    pytest.mark.security,
    pytest.mark.timeout(900),
    pytest.mark.asyncio(loop_scope="module"),
]

_HONEST = 5
# All floods one after another; what a service needs when it is quiet is within.
_MEMORY_MB = 600.0


@pytest.mark.parametrize("connections", [1, 50])
@pytest.mark.parametrize("flood", FLOODS, ids=lambda flood: flood.name)
async def test_a_flood_refuses_nobody(
    targets: list[Target], flood: Flood, connections: int
) -> None:
    for target in targets:
        if flood.for_open_methods and not target.open_methods:
            continue
        async with flooding(flood, target, connections):
            for _ in range(_HONEST):
                # A connection of its own each time: so come most honest callers.
                async with grpc.aio.insecure_channel(target.address) as channel:
                    await target.honest(channel)
                    assert await target.check(channel)
        assert target.memory_mb() < _MEMORY_MB, (target.name, flood.name)
