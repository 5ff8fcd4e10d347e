from __future__ import annotations

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from bos_agentkit import AgentServiceSettings


class CodeSettings(AgentServiceSettings):
    """Settings of the code agent. Durations are in seconds."""

    model_config = SettingsConfigDict(env_prefix="BOS_CODE_")

    sandbox_target: str = Field(
        min_length=1, description="Address of the sandbox, such as dns:///sandbox:8080"
    )
    program_timeout_s: float = Field(
        default=10.0, gt=0, description="Timeout of one program; the sandbox may allow less"
    )
    max_code_bytes: int = Field(
        default=16 * 1024,
        ge=256,
        description="Maximum size of a program; the sandbox may allow less",
    )
    max_corrections: int = Field(
        default=1,
        ge=0,
        le=5,
        description="New attempts of the model after a program that does not parse",
    )
    summary_timeout_s: float = Field(
        default=15.0,
        gt=0,
        description="Timeout of the model's summary; after it the result is stated plainly",
    )
