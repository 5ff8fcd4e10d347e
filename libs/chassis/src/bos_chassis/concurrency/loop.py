"""The event loop of a Bos process."""

from __future__ import annotations

import asyncio
import sys

from bos_chassis import PREPARES_FORKS


def new_event_loop() -> asyncio.AbstractEventLoop:
    """An event loop of uvloop, or asyncio's own where there is none (Windows).

    It saves up to a tenth of a service's processor time (docs/operations/performance.md).

    Raises:
        RuntimeError: gRPC was imported before this package, so that programs which the loop starts
            would now and then die of a segmentation fault before they begin.
    """
    if sys.platform == "win32":
        return asyncio.new_event_loop()
    if PREPARES_FORKS:
        raise RuntimeError("import bos_chassis before grpc, or set GRPC_ENABLE_FORK_SUPPORT=0")
    import uvloop

    return uvloop.new_event_loop()
