"""Entry point of ``python -m bos_protocols``."""

from __future__ import annotations

import asyncio

from bos_chassis.process import main
from bos_protocols.service import serve
from bos_protocols.settings import ProtocolsSettings

if __name__ == "__main__":
    # Of asyncio itself: uvloop loses what a peer says before its handshake, now and then.
    main("protocols", ProtocolsSettings, serve, loop_factory=asyncio.new_event_loop)
