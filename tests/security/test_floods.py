"""Anonymous clients flood a service: honest callers and probes are answered, memory is bounded.

`make trial NAME=floods` does the same over a thousand connections (``BOS_TEST_FLOOD_CONNECTIONS``).
"""

import os
import resource
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from .deployments import Deployment
from .flooder import Flooder, flooder
from .floods import FLOODS, named

pytestmark = [
    pytest.mark.security,
    pytest.mark.timeout(900),
    pytest.mark.asyncio(loop_scope="module"),
]

_HONEST = 2
CONNECTIONS = int(os.environ.get("BOS_TEST_FLOOD_CONNECTIONS", "50"))
SERVERS = ("identity", "mcp_db", "rest")
"""One of each kind: gRPC, where the chassis serves all services alike, HTTP of Python and of Go."""
# Of services in one process, over one connection: what calls hold, and what each call costs.
STANDALONE = ("silent-calls", "wrong-tokens")
CASES = [
    *(("separate", flood.name, CONNECTIONS) for flood in FLOODS),
    *(("standalone", name, 1) for name in STANDALONE),
]
if (
    CONNECTIONS > 100
):  # each connection is a file, here and in the services, which inherit the limit
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def attacker(clean_environment: None) -> AsyncIterator[Flooder]:
    """A process that floods."""
    async with flooder() as process:
        yield process


@pytest.mark.parametrize(("deployment", "name", "connections"), CASES, indirect=["deployment"])
async def test_flood_does_not_affect_honest_callers(
    deployment: Deployment, attacker: Flooder, name: str, connections: int
) -> None:
    flood = named(name)
    targets = [each for key, each in deployment.targets.items() if key in SERVERS]
    flooded = [target for target in targets if flood.is_for(target)]
    assert flooded
    for target in flooded:
        async with attacker.flooding(name, target, connections):
            for _ in range(_HONEST):
                # A connection of its own each time: so come most honest callers.
                async with target.connected() as honest:
                    await honest.ask()
                    assert await honest.check()
        assert target.memory_mb() < target.memory_bound_mb, (target.name, name)


async def test_floods_are_a_few_lines_in_the_log(deployment: Deployment) -> None:
    said = deployment.logged()
    assert "Traceback" not in said, said[said.index("Traceback") - 4000 :][:8000]
    assert len(said) < 2_000_000, "floods fill the disk"
