"""Variables whose names depend on an agent or a provider: ``SQL_MODEL``, ``MISTRAL_API_KEY``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pydantic_settings import EnvSettingsSource, PydanticBaseSettingsSource

from bos_errors import ConfigurationError

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo
    from pydantic_settings import BaseSettings

SHARED_VARIABLES = ("openai", "azure", "compatible")
"""Providers whose variables are fields of the settings."""
OTHER_NAMES = {"HITL_CLASSIFIER_PROVIDER": "HITL_CLASSIFIER_MODEL_PROVIDER"}
"""Names beside those that the rule yields."""
_PER_AGENT = re.compile(
    r"[A-Z][A-Z0-9_]*_(MODEL_PROVIDER|MODEL_KEYS|MODEL_TIER|MODEL|TEMPERATURE"
    r"|REASONING_EFFORT|MAX_REPLY_TOKENS|EXTRA_BODY)"
)


def variable_of(name: str, what: str) -> str:
    """The variable that says ``what`` of the agent or provider ``name``."""
    return f"{re.sub(r'[^A-Za-z0-9]+', '_', name).upper()}_{what}"


class NamedVariables(PydanticBaseSettingsSource):
    """``<AGENT>_MODEL`` and its like, and the address and key of the providers they name."""

    def __init__(
        self, settings_cls: type[BaseSettings], *sources: PydanticBaseSettingsSource
    ) -> None:
        super().__init__(settings_cls)
        self._sources = sources

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Not used: this source yields one whole field."""
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        """The one field, with those variables that are set."""
        known: dict[str, str] = {}
        for source in self._sources:  # the weightiest first
            if isinstance(source, EnvSettingsSource):
                for name, value in source.env_vars.items():
                    if value:
                        known.setdefault(name.upper(), value)
        for other, name in OTHER_NAMES.items():
            text = known.pop(other, None)
            if text is not None and known.setdefault(name, text) != text:
                raise ConfigurationError(
                    f"Configuration is not usable. {name} and {other} mean the same and are set to "
                    "different values; set one of them"
                )
        chosen = {
            name: value
            for name, value in known.items()
            if _PER_AGENT.fullmatch(name) and not name.startswith("BOS_")
        }
        providers = {
            value.lower() for name, value in known.items() if name.endswith("_MODEL_PROVIDER")
        }
        for provider in providers.difference(SHARED_VARIABLES):
            for part in ("BASE_URL", "API_KEY", "API_KEY_FILE"):
                name = variable_of(provider, part)
                if name in known:
                    chosen[name] = known[name]
        return {"variables": chosen} if chosen else {}
