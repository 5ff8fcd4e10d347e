"""Which model each agent uses, and how to reach it.

``OPENAI_API_KEY``, or ``OPENAI_BASE_URL`` and ``BOS_MODEL``, is all it takes. Beyond that, each
agent may have its own ``<AGENT>_MODEL_PROVIDER``, ``<AGENT>_MODEL`` and ``<AGENT>_TEMPERATURE``
(SPEC N-02). The providers:

=============  =======================================================  =========================
``openai``     ``OPENAI_API_KEY``, ``OPENAI_BASE_URL`` if not theirs    default models known
``azure``      ``AZURE_OPENAI_ENDPOINT``, ``AZURE_OPENAI_API_KEY``,     model = deployment name
               or ``AZURE_OPENAI_AUTH=managed_identity`` without a key
``compatible`` ``OPENAI_BASE_URL``, ``OPENAI_API_KEY`` if it needs one  model name required
any other      ``<PROVIDER>_BASE_URL``, ``<PROVIDER>_API_KEY``          model name required
=============  =======================================================  =========================

Each of these variables may hold several keys, separated by commas. Other keys have names:
``BOS_MODEL_KEYS`` holds profiles, ``<AGENT>_MODEL_KEYS`` chooses one for an agent (SPEC N-05).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SecretStr, TypeAdapter, ValidationError
from pydantic_settings import EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from bos_chassis.errors import ConfigurationError
from bos_chassis.settings import Settings
from bos_llm.prices import PriceTable
from bos_llm.profiles import NamedProfile, split_keys
from bos_llm.usage import ModelPrice

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo
    from pydantic_settings import BaseSettings

# SPEC N-04: the analytics agents. Everybody else starts with the default of SPEC X-21.
_DEFAULT_MODELS = {"sql": "gpt-4.1"}
_DEFAULT_MODEL = "gpt-4o-mini"
# SPEC L-03.
_DEFAULT_TEMPERATURES = {"memory": 0.1}
_PER_AGENT = re.compile(r"[A-Z][A-Z0-9_]*_(MODEL_PROVIDER|MODEL_KEYS|MODEL|TEMPERATURE)")
_BUILT_IN_PROVIDERS = ("openai", "azure", "compatible")

Temperature = Annotated[
    float | None,
    Field(ge=0, le=2),
    BeforeValidator(lambda value: None if value == "none" else value),
]
"""``none`` leaves it to the model; some models accept no other value."""

_TEMPERATURE: TypeAdapter[float | None] = TypeAdapter(Temperature)


@dataclass(frozen=True, slots=True)
class AgentModelConfig:
    """The model of one agent (SPEC N-03)."""

    provider: str
    model: str
    temperature: float | None
    """None: not sent, so that the model's own default holds."""
    keys: str = ""
    """The profile whose keys are used; empty for the provider's own variable."""
    tier: Literal["standard", "small"] = "standard"
    """``small``: simpler calls, one thing at a time."""


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach a provider."""

    provider: str
    kind: Literal["openai", "azure", "compatible"]
    base_url: str | None
    """None: where the ``openai`` package goes by default."""
    keys: tuple[SecretStr, ...]
    """In the order in which they are used; a lone endpoint may need none."""
    url_variable: str
    key_variable: str
    api_version: str = ""
    profile: str = ""
    """Where the keys are from; empty for the provider's own variable."""
    managed_identity: bool = False
    """Tokens of this machine's identity take the place of a key."""
    client_id: str | None = None
    """Which of several identities."""


class ModelSettings(Settings):
    """Settings of all model calls of a process. Durations are in seconds."""

    model_config = SettingsConfigDict(env_prefix="BOS_MODEL_", protected_namespaces=())

    api_key: SecretStr | None = Field(
        default=None,
        validation_alias="OPENAI_API_KEY",
        description="Key of the model endpoint, or several, separated by commas",
    )
    base_url: str | None = Field(
        default=None,
        validation_alias="OPENAI_BASE_URL",
        pattern=r"^https?://",
        description="OpenAI-compatible endpoint, such as http://127.0.0.1:8080/v1",
    )
    model: str | None = Field(
        default=None,
        validation_alias="BOS_MODEL",
        description="Model of every agent that has none of its own",
    )
    provider: str | None = Field(
        default=None, description="Provider of every agent that has none of its own"
    )
    temperature: Temperature = Field(
        default=0.0, description="Temperature of every agent that has none of its own, or none"
    )
    azure_endpoint: str | None = Field(
        default=None,
        validation_alias="AZURE_OPENAI_ENDPOINT",
        pattern=r"^https?://",
        description="Azure OpenAI resource, such as https://example.openai.azure.com",
    )
    azure_api_key: SecretStr | None = Field(
        default=None,
        validation_alias="AZURE_OPENAI_API_KEY",
        description="Its key, or several, separated by commas",
    )
    azure_auth: Literal["key", "managed_identity"] = Field(
        default="key",
        validation_alias="AZURE_OPENAI_AUTH",
        description="managed_identity: by tokens of the platform instead of a key; needs the extra "
        "bos-llm[azure]",
    )
    azure_client_id: str | None = Field(
        default=None,
        validation_alias="AZURE_CLIENT_ID",
        description="Which managed identity, if there are several",
    )
    azure_api_version: str = Field(
        default="2024-10-21", validation_alias="OPENAI_API_VERSION", description="Its API version"
    )
    timeout_s: float = Field(default=60.0, gt=0, description="One attempt of a model call")
    stream_timeout_s: float = Field(default=300.0, gt=0, description="One streamed reply")
    stream_idle_timeout_s: float = Field(
        default=30.0, gt=0, description="Silence after which a streamed reply is given up"
    )
    max_attempts: int = Field(default=4, ge=1, le=10, description="Attempts of one model call")
    retry_base_s: float = Field(default=0.5, gt=0, description="First wait before a retry")
    retry_cap_s: float = Field(default=8.0, gt=0, description="Longest computed wait")
    max_retry_after_s: float = Field(
        default=30.0, ge=0, description="Longest wait that an endpoint may ask for"
    )
    max_prompt_chars: int = Field(
        default=400_000, ge=1, description="Characters of all messages of a call together"
    )
    max_reply_chars: int = Field(default=1_000_000, ge=1, description="Characters of a reply")
    key_profiles: Mapping[str, NamedProfile] = Field(
        default_factory=dict,
        max_length=64,
        validation_alias="BOS_MODEL_KEYS",
        description='Keys by name of a profile: {"research": ["k1", "k2"]}, or with the only '
        'provider they are for and its address: {"eu": {"keys": ["k1"], "provider": "openai", '
        '"base_url": "https://eu.example/v1"}}',
    )
    key_set_aside_s: float = Field(
        default=300.0,
        ge=0,
        description="A key that was refused, or has no quota, is not used for this long while "
        "there is another one; and longest rest of one that is too busy",
    )
    prices: Mapping[str, ModelPrice] = Field(
        default_factory=dict,
        description="US dollars per million tokens, where they differ from the table of bos_llm: "
        '{"gpt-4.1": {"input": 2, "cached_input": 0.5, "output": 8}}',
    )
    prices_file: Path | None = Field(
        default=None,
        description="The same in a file, JSON or TOML, of the shape of bos_llm's prices.json",
    )
    variables: Mapping[str, SecretStr] = Field(
        default_factory=dict,
        description="Variables whose names depend on an agent or a provider, such as SQL_MODEL",
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Add the variables that are named after agents and providers."""
        named = _NamedVariables(settings_cls, env_settings, dotenv_settings)
        return init_settings, env_settings, dotenv_settings, named, file_secret_settings

    def get_agent_model_config(self, agent: str) -> AgentModelConfig:
        """The provider, model and temperature of ``agent`` (SPEC N-02, N-03).

        ``model`` is empty if none is set and the provider has no default.

        Raises:
            ConfigurationError: ``<AGENT>_TEMPERATURE`` is not a number from 0 to 2 or ``none``, or
                ``<AGENT>_MODEL_KEYS`` names no profile that can be used.
        """
        provider = (self._of(agent, "MODEL_PROVIDER") or self._default_provider()).lower()
        model = self._of(agent, "MODEL") or self.model
        if model is None:
            known = provider == "openai"
            model = _DEFAULT_MODELS.get(agent, _DEFAULT_MODEL) if known else ""
        temperature = self.temperature
        if "temperature" not in self.model_fields_set:
            temperature = _DEFAULT_TEMPERATURES.get(agent, temperature)
        own_temperature = self._of(agent, "TEMPERATURE")
        if own_temperature is not None:
            try:
                temperature = _TEMPERATURE.validate_python(own_temperature)
            except ValidationError:
                raise ConfigurationError(
                    f"{_variable(agent, 'TEMPERATURE')}: must be a number from 0 to 2, or none"
                ) from None
        keys = self._of(agent, "MODEL_KEYS") or ""
        if keys:
            try:
                self.access(provider, keys)
            except ConfigurationError as error:
                variable = _variable(agent, "MODEL_KEYS")
                raise ConfigurationError(f"{variable}: {error.message}") from None
        return AgentModelConfig(provider, model, temperature, keys)

    def price_table(self) -> PriceTable:
        """What models cost.

        Raises:
            ConfigurationError: ``BOS_MODEL_PRICES_FILE`` cannot be used.
        """
        return PriceTable.read(self.prices_file, self.prices)

    def access(self, provider: str, profile: str = "") -> Access:
        """How to reach ``provider``; what is missing is left empty, see :meth:`missing`.

        Args:
            provider: Its name.
            profile: The profile whose keys are used; empty for the provider's own variable.

        Raises:
            ConfigurationError: there is no such profile, or it is for another provider.
        """
        own = self._own_access(provider)
        if not profile:
            return own
        chosen = self.key_profiles.get(profile)
        if chosen is None:
            raise ConfigurationError(
                f"there is no key profile {profile!r} here; add it to BOS_MODEL_KEYS"
            )
        if chosen.provider and chosen.provider.lower() != provider:
            raise ConfigurationError(
                f"the key profile {profile!r} is for {chosen.provider} only, and the model is one "
                f"of {provider}; choose another profile, or correct BOS_MODEL_KEYS"
            )
        return replace(
            own,
            keys=tuple(dict.fromkeys(chosen.keys)),
            base_url=chosen.base_url or own.base_url,
            key_variable="BOS_MODEL_KEYS",
            profile=profile,
            managed_identity=False,
        )

    def _own_access(self, provider: str) -> Access:
        if provider == "azure":
            return Access(
                provider,
                "azure",
                self.azure_endpoint,
                split_keys(self.azure_api_key),
                "AZURE_OPENAI_ENDPOINT",
                "AZURE_OPENAI_API_KEY",
                self.azure_api_version,
                managed_identity=self.azure_auth == "managed_identity",
                client_id=self.azure_client_id,
            )
        if provider in _BUILT_IN_PROVIDERS:
            kind: Literal["openai", "compatible"] = (
                "openai" if provider == "openai" else "compatible"
            )
            keys = split_keys(self.api_key)
            return Access(provider, kind, self.base_url, keys, "OPENAI_BASE_URL", "OPENAI_API_KEY")
        url, key = _variable(provider, "BASE_URL"), _variable(provider, "API_KEY")
        keys = split_keys(self.variables.get(key))
        return Access(provider, "compatible", self._value(url), keys, url, key)

    def missing(self, agent: str, config: AgentModelConfig) -> tuple[str, ...]:
        """What to set before ``agent`` can call its model; empty if nothing.

        Raises:
            ConfigurationError: as :meth:`access`.
        """
        access = self.access(config.provider, config.keys)
        if access.kind == "openai":
            # Its models and address are known, and its key is the short way in.
            return () if access.keys else ("OPENAI_API_KEY, or OPENAI_BASE_URL and BOS_MODEL",)
        missing = [] if access.base_url else [access.url_variable]
        if access.kind == "azure" and not access.keys and not access.managed_identity:
            missing.append(f"{access.key_variable} or AZURE_OPENAI_AUTH=managed_identity")
        if not config.model:
            missing.append(f"BOS_MODEL or {_variable(agent, 'MODEL')}")
        return tuple(missing)

    def _default_provider(self) -> str:
        if self.provider is not None:
            return self.provider
        if self.api_key is None and self.base_url is None and self.azure_endpoint is not None:
            return "azure"
        # A base URL without a key is somebody's own server, whose model names we cannot guess.
        return "compatible" if self.api_key is None and self.base_url is not None else "openai"

    def _of(self, agent: str, what: str) -> str | None:
        return self._value(_variable(agent, what))

    def _value(self, variable: str) -> str | None:
        secret = self.variables.get(variable)
        return None if secret is None else secret.get_secret_value()


class _NamedVariables(PydanticBaseSettingsSource):
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
        known: dict[str, str] = {}
        for source in self._sources:  # the weightiest first
            if isinstance(source, EnvSettingsSource):
                for name, value in source.env_vars.items():
                    if value:
                        known.setdefault(name.upper(), value)
        chosen = {
            name: value
            for name, value in known.items()
            if _PER_AGENT.fullmatch(name) and not name.startswith("BOS_")
        }
        providers = {
            value.lower() for name, value in known.items() if name.endswith("_MODEL_PROVIDER")
        }
        for provider in providers.difference(_BUILT_IN_PROVIDERS):
            for part in ("BASE_URL", "API_KEY"):
                name = _variable(provider, part)
                if name in known:
                    chosen[name] = known[name]
        return {"variables": chosen} if chosen else {}


def _variable(name: str, what: str) -> str:
    return f"{re.sub(r'[^A-Za-z0-9]+', '_', name).upper()}_{what}"
