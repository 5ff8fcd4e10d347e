"""Entry point of the console script ``bos``."""

from __future__ import annotations

import os


def main() -> None:
    """Run the command line."""
    # gRPC reads these when it is first imported, so they come before every other import.
    # It reports every lost connection on stderr; we say what it means instead.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    # `bos serve` starts programs from a process that uses gRPC; none of them is a fork that goes on
    # using it, which is what gRPC would prepare for, and complain about.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    from bos_cli.main import main as command_line

    command_line()
