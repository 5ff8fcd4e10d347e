"""Latency of honest calls, and memory of the service, during floods.

Half of all and 95 of a hundred honest calls take no longer than what is printed, one after another
over a connection of their own: when the service is quiet, beside as many honest connections with a
call under way on each (fewer where a service has fewer places for one address), and in each flood
over as many connections. Services, flooder and honest callers are processes of their own. Exits 1
if an honest call is refused, a probe finds a service dead, or memory grows beyond its bound.
"""

import argparse
import asyncio
import os
import resource
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bos_postgres import create_database
from bos_testkit.certificates import Authority
from bos_testkit.postgres import embedded_server

from .deployments import separate
from .flood_targets import Target
from .flooder import HONEST, Flooder, flooder
from .floods import FLOODS, named

_SHOWN = 500
_MOST_S = 8.0
"""For the honest calls beside one flood."""


@dataclass
class Measured:
    """What became of some honest calls."""

    took_ms: list[float]
    refused: int
    why: str
    """Error of the last refused call."""

    def at(self, share: float) -> float:
        """What so large a share of them took at most."""
        return sorted(self.took_ms)[int(len(self.took_ms) * share)]

    def __str__(self) -> str:
        few = f" of {len(self.took_ms)}"
        return (
            f"p50 {self.at(0.5):8.1f} ms  p95 {self.at(0.95):8.1f} ms  refused {self.refused}{few}"
        )


async def _measure(target: Target, calls: int) -> Measured:
    took, refused, why = list[float](), 0, ""
    ends = time.monotonic() + _MOST_S
    async with target.connected() as honest:
        while len(took) < calls and (time.monotonic() < ends or len(took) < 5):
            began, alive = time.perf_counter(), False
            try:
                await honest.ask()
                alive = await honest.check()
            except Exception as error:  # any error means no answer
                why = repr(error)[:_SHOWN]
            refused += not alive
            took.append((time.perf_counter() - began) * 1000)
    return Measured(took, refused, why)


async def _of_target(target: Target, attacker: Flooder, given: argparse.Namespace) -> int:
    failures = 0
    connections = given.connections
    print(f"{target.name}: at most {target.memory_bound_mb:.0f} MB", flush=True)

    def show(name: str, found: Measured) -> None:
        nonlocal failures
        memory = target.memory_mb()
        failed = found.refused > 0 or memory > target.memory_bound_mb
        failures += failed
        print(f"  {name:<22} {found}  {memory:5.0f} MB{' FAILED' * failed}", flush=True)
        if found.why:
            print(f"    {found.why}", flush=True)

    show("quiet", await _measure(target, given.calls))
    equals = min(connections, target.honest_at_once)
    async with attacker.flooding(HONEST, target, equals):
        show(f"{equals} honest", await _measure(target, given.calls))
    for flood in FLOODS if given.flood is None else (named(given.flood),):
        if flood.is_for(target):
            async with attacker.flooding(flood.name, target, connections):
                show(flood.name, await _measure(target, given.calls))
    return failures


async def _report(given: argparse.Namespace) -> int:
    failures = 0
    with tempfile.TemporaryDirectory() as name, embedded_server(Path(name)) as server:
        dsn = await create_database(server.dsn(), "floods")
        authority = Authority(Path(name) / "authority") if given.tls else None
        async with separate(dsn, Path(name), authority) as made, flooder() as attacker:
            for target in made.targets.values():
                if given.only in (None, target.name):
                    failures += await _of_target(target, attacker, given)
    return 1 if failures else 0


def main() -> int:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--calls", type=int, default=100, help="honest calls beside each flood")
    parser.add_argument("--only", help="one of identity, memory, gateway, mcp_db, rest")
    parser.add_argument("--flood", help="one of the floods")
    parser.add_argument("--tls", action="store_true", help="services speak TLS")
    given = parser.parse_args()
    # Each connection is a file, here and in the services, which inherit the limit.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    for variable in [one for one in os.environ if one.startswith("BOS_")]:
        del os.environ[variable]
    return asyncio.run(_report(given))


if __name__ == "__main__":
    sys.exit(main())
