"""Entry point of ``python -m bos_planner``."""

from __future__ import annotations

from bos_chassis.process import main, service_auth
from bos_llm import open_models
from bos_planner.service import serve
from bos_planner.settings import PlannerSettings

if __name__ == "__main__":
    main("planner", PlannerSettings, serve, auth=service_auth, models=open_models)
