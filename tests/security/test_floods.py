"""Anonymous clients flood a service: honest callers and probes are answered, memory is bounded.

`make trial NAME=floods` does the same with a thousand connections, and measures.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from .deployments import Deployment
from .flooder import Flooder, flooder
from .floods import FLOODS, Flood

pytestmark = [
    pytest.mark.security,
    pytest.mark.timeout(900),
    pytest.mark.asyncio(loop_scope="module"),
]

_HONEST = 2


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def attacker(clean_environment: None) -> AsyncIterator[Flooder]:
    """A process that floods."""
    async with flooder() as process:
        yield process


@pytest.mark.parametrize("flood", FLOODS, ids=lambda flood: flood.name)
async def test_flood_does_not_affect_honest_callers(
    deployment: Deployment, attacker: Flooder, flood: Flood
) -> None:
    # Over one connection at the standalone, over many at the processes that speak TLS.
    connections = 1 if deployment.signer is None else 50
    flooded = {target.pid: target for target in deployment.targets.values() if flood.is_for(target)}
    for target in flooded.values():
        async with attacker.flooding(flood.name, target, connections):
            for _ in range(_HONEST):
                # A connection of its own each time: so come most honest callers.
                async with target.connected() as honest:
                    await honest.ask()
                    assert await honest.check()
        assert target.memory_mb() < target.memory_bound_mb, (target.name, flood.name)


async def test_floods_are_a_few_lines_in_the_log(deployment: Deployment) -> None:
    said = deployment.logged()
    assert "Traceback" not in said, said[said.index("Traceback") - 4000 :][:8000]
    assert len(said) < 2_000_000, "floods fill the disk"
