"""``make trial NAME=crash``: gateways that are ended in every way, at random, under a steady load.

::

    PYTHONPATH=services/gateway/tests python -m gateway_harness.crash.matrix --kills 1000 [--seed N]

Every round has a database server of its own, three gateways and clients that ask, follow, cancel
and reconnect. Some of their runs meet hostile agents and plans (``crash/hostile.py``), and one of
each round kills its owner. Meanwhile gateways are killed at random moments and at random
commits, frozen, drained and cut off from PostgreSQL, and PostgreSQL itself crashes, alone or with
every gateway as in a power cut, without flushing what no commit waits for. What died is started
again. At the end of a round every client waits for its end, and the whole contract is checked
(``run_contract.py``): what a client saw before a crash must be in the logs.

Gateways have the settings of the product, lease included, but for the time that people have to
decide. So a run that is innocent may die with its owners as often as any other: ``--pause-s`` must
leave it the time to get further.

What happens in a round is drawn from its seed; when it happens depends on the machine as well. So
``--seed`` with the seed of a round that failed and ``--rounds 1`` tries the same again.
"""

import argparse
import asyncio
import os
import random
import sys
import time
from collections.abc import Iterator

from gateway_harness.crash.round import ACTIONS, RoundPlan, Stats, one_round
from gateway_harness.run_contract import Verdict

_ROUND_S = 45.0
_LEASE_S = 3.0
_PAUSE_S = 2.5


async def matrix(options: argparse.Namespace) -> int:
    """Rounds until there were enough kills, or enough of them, or the time is over."""
    stats, ends = Stats(), time.monotonic() + options.seconds
    seeds = _seeds(options.seed)
    begun, broken = 0, False

    async def play() -> None:
        nonlocal begun, broken
        while True:
            over = stats.kills >= options.kills or time.monotonic() >= ends
            if over or begun >= options.rounds or (broken and not options.keep_going):
                return
            begun, seed = begun + 1, next(seeds)
            verdict = await one_round(_plan(seed, options), stats)
            stats.rounds += 1
            _print(seed, verdict, stats)
            broken = broken or bool(verdict.broken)

    await asyncio.gather(*(play() for _ in range(options.at_once)))
    print(f"\nseed {options.seed}, lease {options.lease_s} s\n{stats}", flush=True)
    return int(broken)


def _seeds(first: int) -> Iterator[int]:
    """One for each round; the first round has the seed that was given."""
    yield first
    following = random.Random(first)
    while True:
        yield following.randrange(2**32)


def _plan(seed: int, options: argparse.Namespace) -> RoundPlan:
    return RoundPlan(
        seed, options.round_seconds, options.lease_s, options.pause_s, options.only, options.log
    )


def _print(seed: int, verdict: Verdict, stats: Stats) -> None:
    print(f"seed {seed}: {verdict.runs} runs, broken {len(verdict.broken)}; so far {stats}")
    for found in [*verdict.broken, *verdict.late]:
        print(f"  {found}")
    if verdict.broken:
        print(f"again with: --seed {seed} --rounds 1")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"))
    parser.add_argument("--kills", type=int, default=1000, help="enough of them")
    parser.add_argument("--rounds", type=int, default=10**6, help="most rounds")
    parser.add_argument("--seconds", type=float, default=3600.0, help="most time")
    parser.add_argument("--at-once", type=int, default=1, help="rounds beside one another")
    parser.add_argument("--round-seconds", type=float, default=_ROUND_S)
    parser.add_argument("--lease-s", type=float, default=_LEASE_S)
    parser.add_argument("--pause-s", type=float, default=_PAUSE_S, help="between two actions")
    parser.add_argument("--only", nargs="*", default=[], choices=ACTIONS, help="only these")
    parser.add_argument("--log", default=os.devnull, help="file for the logs of all gateways")
    parser.add_argument("--keep-going", action="store_true", help="also after a broken contract")
    sys.exit(asyncio.run(matrix(parser.parse_args())))


if __name__ == "__main__":
    main()
