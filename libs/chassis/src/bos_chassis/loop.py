"""The event loop of a Bos process."""

from __future__ import annotations

import asyncio
import os
import sys


def new_event_loop() -> asyncio.AbstractEventLoop:
    """An event loop of uvloop, or asyncio's own where there is none (Windows).

    It saves up to a tenth of a service's processor time (docs/performance.md).
    """
    # uvloop starts programs by fork and exec. gRPC would prepare every fork for a child that goes on
    # using it, and complain on stderr that it cannot; no child of ours does.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    if sys.platform == "win32":
        return asyncio.new_event_loop()
    import uvloop

    return uvloop.new_event_loop()
