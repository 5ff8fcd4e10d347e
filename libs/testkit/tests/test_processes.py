"""Ports of services that come and go."""

import socket
import subprocess
import sys
from contextlib import ExitStack
from itertools import combinations

from bos_testkit.processes import free_port

# Draws as many as its argument says, and runs until its input ends.
_DRAWER = """
import sys
from bos_testkit.processes import free_port
print(*(free_port() for _ in range(int(sys.argv[1]))), flush=True)
sys.stdin.read()
"""


def test_concurrent_processes_draw_different_ports() -> None:
    """A service binds its port a good while after it was drawn."""
    with ExitStack() as running:
        drawers = [
            running.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", _DRAWER, "300"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
            )
            for _ in range(5)
        ]
        drawn = []
        for drawer in drawers:
            drawn.append({int(port) for port in drawer.stdout.readline().split()})
    assert all(len(ports) > 200 for ports in drawn)
    assert not any(one & other for one, other in combinations(drawn, 2))


def test_a_port_in_use_is_passed_over() -> None:
    with ExitStack() as bound:
        taken = set()
        for _ in range(20):
            port = free_port()
            listener = bound.enter_context(socket.socket())
            listener.bind(("127.0.0.1", port))
            taken.add(port)
        assert len(taken) == 20
        assert taken.isdisjoint(free_port() for _ in range(300))
