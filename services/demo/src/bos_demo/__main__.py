"""Entry point of `python -m bos_demo`: load the sample company, run the scripted model."""

from __future__ import annotations

from bos_chassis.process import run_service
from bos_demo.service import serve
from bos_demo.settings import DemoSettings

if __name__ == "__main__":
    run_service(serve, DemoSettings)
