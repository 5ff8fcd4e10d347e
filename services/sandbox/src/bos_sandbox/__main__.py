"""``python -m bos_sandbox``: the sandbox as a process of its own."""

from __future__ import annotations

from bos_chassis.process import main, step_auth
from bos_sandbox.service import AUDIENCE, serve
from bos_sandbox.settings import SandboxSettings

if __name__ == "__main__":
    main(AUDIENCE, SandboxSettings, serve, auth=step_auth)
