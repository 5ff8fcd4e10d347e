"""Settings of the composer."""

from __future__ import annotations

from babel.core import Locale, UnknownLocaleError
from babel.numbers import is_currency
from pydantic import Field, field_validator
from pydantic_settings import SettingsConfigDict

from bos_chassis.settings import ServerSettings, Settings


class ComposerSettings(Settings):
    """Settings ``BOS_COMPOSER_…``; the model is set by ``COMPOSER_MODEL`` and related variables."""

    model_config = SettingsConfigDict(env_prefix="BOS_COMPOSER_")

    server: ServerSettings = Field(default_factory=ServerSettings.load)
    locale: str = Field(
        default="en", description="How numbers are written, such as en_IN, en_US or de_DE"
    )
    currency: str = Field(
        default="",
        description="ISO 4217 code of columns that are declared as money without a currency; "
        "unset: their numbers are shown without one",
    )
    model_timeout_s: float = Field(
        default=55.0,
        gt=0,
        description="Time for the model, retries included; after that the answer is put together "
        "without it. To be below BOS_GATEWAY_COMPOSE_TIMEOUT_S: raise both for a slow model",
    )
    history_messages: int = Field(
        default=10, ge=0, le=100, description="Recent messages shown to the model"
    )
    preview_rows: int = Field(
        default=20, ge=1, le=200, description="Rows of each table shown to the model"
    )
    max_answer_chars: int = Field(
        default=50_000, ge=1000, description="Longest answer; more is cut off"
    )

    @field_validator("locale")
    @classmethod
    def _known_locale(cls, value: str) -> str:
        try:
            return str(Locale.parse(value.replace("-", "_")))
        except (UnknownLocaleError, ValueError):
            raise ValueError("must be a locale such as en_IN, en_US or de_DE") from None

    @field_validator("currency")
    @classmethod
    def _known_currency(cls, value: str) -> str:
        if value and not is_currency(value.upper()):
            raise ValueError("must be an ISO 4217 code such as INR, USD or EUR")
        return value.upper()
