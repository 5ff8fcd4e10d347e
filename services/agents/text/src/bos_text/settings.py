from __future__ import annotations

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from bos_agentkit import AgentServiceSettings


class TextSettings(AgentServiceSettings):
    """Settings of the text agent."""

    model_config = SettingsConfigDict(env_prefix="BOS_TEXT_")

    read_chars: int = Field(
        default=12_000,
        ge=500,
        le=200_000,
        description="Characters of a text that one model call reads; longer texts are read part by "
        "part, and the answer is made from what was noted of each",
    )
    written_chars: int = Field(
        default=3_000,
        ge=500,
        le=50_000,
        description="Characters of a text that one model call writes anew in full, as translations "
        "do; within the model's limit for replies",
    )
    max_parts: int = Field(
        default=24,
        ge=1,
        le=200,
        description="Maximum parts of one text; a text with more is refused",
    )
    parallel_parts: int = Field(
        default=4, ge=1, le=32, description="Parts of one text processed concurrently"
    )
