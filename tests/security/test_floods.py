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

_HONEST = 1
CONNECTIONS = int(os.environ.get("BOS_TEST_FLOOD_CONNECTIONS", "50"))
SERVERS = ("identity", "mcp_db", "rest")
"""One of each kind: gRPC, where the chassis serves all services alike, HTTP of Python and of Go."""
# Each connection is a file, here and in the services, which inherit the limit.
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, max(4096, 4 * CONNECTIONS)), most))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def attacker(clean_environment: None) -> AsyncIterator[Flooder]:
    """A process that floods."""
    async with flooder() as process:
        yield process


separate = pytest.mark.parametrize("deployment", ["separate"], indirect=True)
standalone = pytest.mark.parametrize("deployment", ["standalone"], indirect=True)


async def assert_withstood(
    name: str, deployment: Deployment, attacker: Flooder, connections: int
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


def assert_few_lines(logged: str) -> None:
    assert "Traceback" not in logged, logged[logged.index("Traceback") - 4000 :][:8000]
    assert len(logged) < 2_000_000, "floods fill the disk"


@separate
@pytest.mark.parametrize("name", [flood.name for flood in FLOODS])
async def test_flood_does_not_affect_honest_callers(
    deployment: Deployment, attacker: Flooder, name: str
) -> None:
    await assert_withstood(name, deployment, attacker, CONNECTIONS)


@separate
async def test_floods_are_a_few_lines_in_the_log(deployment: Deployment) -> None:
    assert_few_lines(deployment.logged())


@standalone
async def test_standalone_withstands_floods_over_one_connection(
    deployment: Deployment, attacker: Flooder
) -> None:
    # What calls hold, and what each call costs.
    for name in ("silent-calls", "wrong-tokens"):
        await assert_withstood(name, deployment, attacker, 1)
    assert_few_lines(deployment.logged())
