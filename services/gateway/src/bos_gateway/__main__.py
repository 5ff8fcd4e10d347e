"""``python -m bos_gateway``: the gateway as a process of its own."""

from __future__ import annotations

from bos_chassis.process import main
from bos_gateway.service import migrate_store, serve
from bos_gateway.settings import GatewaySettings

if __name__ == "__main__":
    main("gateway", GatewaySettings, serve, migrate=migrate_store)
