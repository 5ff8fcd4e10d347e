from __future__ import annotations

from babel.core import Locale, UnknownLocaleError
from pydantic import Field, field_validator
from pydantic_settings import SettingsConfigDict

from bos_agentkit import AgentServiceSettings


class ChartsSettings(AgentServiceSettings):
    """Settings of the charts agent. Durations are in seconds."""

    model_config = SettingsConfigDict(env_prefix="BOS_CHARTS_")

    locale: str = Field(
        default="en",
        description="Locale of numbers and dates on axes, such as en_IN or de_DE",
    )
    max_input_rows: int = Field(
        default=5_000,
        ge=10,
        le=50_000,
        description="Maximum rows of a table to aggregate; larger tables are refused",
    )
    max_points: int = Field(
        default=500,
        ge=10,
        le=5_000,
        description="Maximum rows of data in a chart, after aggregation",
    )
    max_categories: int = Field(
        default=15,
        ge=3,
        le=50,
        description="Maximum bars of a chart; the smallest others become one bar named Others",
    )
    max_series: int = Field(
        default=6, ge=2, le=20, description="Maximum series of a chart; the rest become Others"
    )
    model_timeout_s: float = Field(
        default=15.0,
        gt=0,
        description="Timeout of the model's choice; after it the rules choose the chart",
    )
    render_timeout_s: float = Field(
        default=20.0, gt=0, description="Timeout of rendering one chart"
    )
    render_workers: int = Field(
        default=2, ge=1, le=16, description="Charts rendered concurrently; more wait"
    )
    render_memory_bytes: int = Field(
        default=1536 * 1024 * 1024,
        ge=800 * 1024 * 1024,
        description="Private memory limit of one rendering process; an idle one reserves 590 MB",
    )

    @field_validator("locale")
    @classmethod
    def _known_locale(cls, value: str) -> str:
        try:
            return str(Locale.parse(value.replace("-", "_")))
        except (UnknownLocaleError, ValueError):
            raise ValueError("must be a locale such as en_IN, en_US or de_DE") from None
