"""``python -m bos_identity``: identity as a process of its own."""

from __future__ import annotations

from bos_chassis.process import main
from bos_identity.service import migrate_store, serve
from bos_identity.settings import IdentitySettings

if __name__ == "__main__":
    main("identity", IdentitySettings, serve, migrate=migrate_store)
