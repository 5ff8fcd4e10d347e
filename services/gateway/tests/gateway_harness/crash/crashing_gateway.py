"""``python crashing_gateway.py``: a gateway that ends or freezes itself where it commits.

The gateway itself is that of the product; only this program looks at what it sends to PostgreSQL.
Its first argument or, later, lines on stdin say where to fail::

    kill step_finished:before 3    # at the third commit with such an event, before it is sent
    stop run_accepted:after        # freezes; SIGCONT lets it go on
    disarm

Each line on stdin is answered by a line of JSON on stdout. Options: ``--replica-id`` names the
replica, so that a test can find its runs; ``--deaf`` loses every notification.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import UUID

from bos_chassis.process import run_service
from bos_chassis.server import GrpcServer
from bos_chassis.telemetry import setup_telemetry
from bos_gateway import service
from bos_gateway.run_log.notifications import Notifications
from bos_gateway.settings import GatewaySettings
from gateway_harness.crash import commit_points

_SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


@dataclass
class Failpoint:
    action: str
    kind: str
    moment: str
    left: int

    @classmethod
    def parse(cls, line: str) -> Failpoint | None:
        """From ``action kind:moment [n]``; None for ``disarm``."""
        action, *rest = line.split()
        if action == "disarm":
            return None
        kind, moment = rest[0].split(":")
        assert action in _SIGNALS
        assert moment in {"before", "after"}
        return cls(action, kind, moment, int(rest[1]) if len(rest) > 1 else 1)


class Crasher:
    """The observer: counts down, then ends or freezes the process."""

    def __init__(self, failpoint: Failpoint | None) -> None:
        self._lock = threading.Lock()  # the lease is renewed in a thread of its own
        self._failpoint = failpoint

    def arm(self, failpoint: Failpoint | None) -> None:
        with self._lock:
            self._failpoint = failpoint

    def before(self, kinds: frozenset[str]) -> None:
        self._passed(kinds, "before")

    def after(self, kinds: frozenset[str]) -> None:
        self._passed(kinds, "after")

    def _passed(self, kinds: frozenset[str], moment: str) -> None:
        with self._lock:
            point = self._failpoint
            if point is None or point.kind not in kinds or point.moment != moment:
                return
            point.left -= 1
            if point.left > 0:
                return
            self._failpoint = None
        os.kill(os.getpid(), _SIGNALS[point.action])

    def obey(self) -> None:
        """Take orders from stdin, to its end."""
        for line in sys.stdin:
            self.arm(Failpoint.parse(line))
            sys.stdout.write(json.dumps({"armed": line.strip()}) + "\n")
            sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("failpoint", nargs="?", default="disarm")
    parser.add_argument("--replica-id", type=UUID)
    parser.add_argument("--deaf", action="store_true", help="hears no other replica")
    parser.add_argument("--dies", action="store_true", help="before it serves")
    options = parser.parse_args()
    crasher = Crasher(Failpoint.parse(options.failpoint))
    commit_points.observe(crasher)
    threading.Thread(target=crasher.obey, daemon=True).start()
    if options.replica_id:
        service.uuid4 = lambda: options.replica_id  # type: ignore[attr-defined]
    if options.deaf:
        Notifications._heard = lambda *_: None  # type: ignore[method-assign]

    @asynccontextmanager
    async def serve(settings: GatewaySettings) -> AsyncIterator[GrpcServer]:
        with setup_telemetry("gateway", settings.telemetry) as telemetry:
            async with service.serve(settings, telemetry) as server:
                if (
                    options.dies
                ):  # with its lease and its connections; its address is not known to clients
                    os.kill(os.getpid(), signal.SIGKILL)
                yield server

    run_service(serve, GatewaySettings)


if __name__ == "__main__":
    main()
