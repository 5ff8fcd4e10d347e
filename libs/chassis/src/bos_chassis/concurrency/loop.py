"""The event loop of a Bos process."""

from __future__ import annotations

import asyncio
import sys


def new_event_loop() -> asyncio.AbstractEventLoop:
    """An event loop of uvloop, or asyncio's own where there is none (Windows).

    It saves up to a tenth of a service's processor time (docs/operations/performance.md).
    """
    if sys.platform == "win32":
        return asyncio.new_event_loop()
    import uvloop

    return uvloop.new_event_loop()
