"""Settings of the planner."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from bos_chassis.settings import ServerSettings, Settings


class PlannerSettings(Settings):
    """Settings ``BOS_PLANNER_…``; the model is set by ``PLANNER_MODEL`` and related variables."""

    model_config = SettingsConfigDict(env_prefix="BOS_PLANNER_")

    server: ServerSettings = Field(default_factory=ServerSettings.load)
    max_steps: int = Field(
        default=20, ge=1, le=64, description="Steps of a plan when the request sets no limit"
    )
    model_timeout_s: float = Field(
        default=50.0,
        gt=0,
        description="Time for the model, retries included; after that the heuristic plans",
    )
    history_messages: int = Field(
        default=10, ge=0, le=100, description="Recent messages shown to the model"
    )
    templates_path: Path | None = Field(
        default=None, description="YAML file of stored plans; unset for none"
    )
