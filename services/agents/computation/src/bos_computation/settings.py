from __future__ import annotations

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from bos_agentkit import AgentServiceSettings


class ComputationSettings(AgentServiceSettings):
    """Settings of the computation agent. Durations are in seconds."""

    model_config = SettingsConfigDict(env_prefix="BOS_COMPUTATION_")

    sandbox_target: str = Field(
        min_length=1, description="Address of the sandbox, such as dns:///sandbox:8080"
    )
    program_timeout_s: float = Field(
        default=10.0, gt=0, description="Timeout of one program; the sandbox may allow less"
    )
    max_corrections: int = Field(
        default=1, ge=0, le=5, description="Corrections by the model after a program that failed"
    )
    summary_timeout_s: float = Field(
        default=15.0,
        gt=0,
        description="Timeout of the model's summary; after it the result is stated plainly",
    )
