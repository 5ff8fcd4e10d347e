"""Entry point of ``python -m bos_doors``."""

from __future__ import annotations

import asyncio

from bos_chassis.process import main
from bos_doors.service import serve
from bos_doors.settings import DoorsSettings

if __name__ == "__main__":
    # Of asyncio itself: uvloop loses what a peer says before its handshake, now and then.
    main("doors", DoorsSettings, serve, loop_factory=asyncio.new_event_loop)
