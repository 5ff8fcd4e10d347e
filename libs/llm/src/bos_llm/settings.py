"""Settings of models: the model of each agent, and how to reach it.

``OPENAI_API_KEY``, or ``OPENAI_BASE_URL`` and ``BOS_MODEL``, is all it takes: which provider is at
an address is recognised by it (``providers.py``). Beyond that, each agent may have its own
``<AGENT>_MODEL_PROVIDER``, ``<AGENT>_MODEL``, ``<AGENT>_TEMPERATURE`` and more. The providers:

=============  =======================================================  =========================
``openai``     ``OPENAI_API_KEY``                                       default models known
``azure``      ``AZURE_OPENAI_ENDPOINT``, ``AZURE_OPENAI_API_KEY``,     model = deployment name
               or ``AZURE_OPENAI_AUTH=managed_identity`` without a key
any other      ``<PROVIDER>_BASE_URL``, ``<PROVIDER>_API_KEY`` if it    model name required
               needs one; of ``BOS_MODEL_PROVIDER`` also
               ``OPENAI_BASE_URL``, ``OPENAI_API_KEY``
=============  =======================================================  =========================

Each of these variables may hold several keys, separated by commas. Other keys have names:
``BOS_MODEL_KEYS`` holds profiles, ``<AGENT>_MODEL_KEYS`` chooses one for an agent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from pydantic import Field, SecretStr, TypeAdapter, ValidationError, model_validator
from pydantic_settings import PydanticBaseSettingsSource, SettingsConfigDict

from bos_chassis.settings import Settings
from bos_errors import ConfigurationError
from bos_llm.agent_config import (
    EFFORT_TYPE,
    EXTRA_BODY_TYPE,
    MAX_REPLY_TOKENS,
    REPLY_TOKENS_TYPE,
    TEMPERATURE_TYPE,
    TIER_TYPE,
    Access,
    AgentModelConfig,
    Effort,
    ExtraBody,
    ReplyTokens,
    Temperature,
    Tier,
)
from bos_llm.endpoints.profiles import (
    MAX_PROFILES,
    KeyProfile,
    NamedProfile,
    keys_of,
    profiles_file,
)
from bos_llm.endpoints.providers import StructuredMode, provider_row, recognise
from bos_llm.named_variables import SHARED_VARIABLES, NamedVariables, variable_of
from bos_llm.prices import PriceTable
from bos_llm.usage import ModelPrice

if TYPE_CHECKING:
    from pydantic_settings import BaseSettings

V = TypeVar("V")

# Chosen for their price and speed; the agent that writes queries gets the stronger one.
DEFAULT_MODELS = {"": "gpt-6-luna", "sql": "gpt-6-sol"}
_DEFAULT_TEMPERATURES = {"memory": 0.1}
# How long models that think do so unless settings say otherwise: people wait for every call.
_CAN_SKIP_THINKING = re.compile(r"gpt-(5\.[1-9]|[6-9])(?!.*-pro)")
_THINKING_AGENTS = frozenset({"sql"})
_V1 = "v1"


class ModelSettings(Settings):
    """Settings of all model calls of a process. Durations are in seconds."""

    model_config = SettingsConfigDict(env_prefix="BOS_MODEL_", protected_namespaces=())

    api_key: SecretStr | None = Field(
        default=None,
        validation_alias="OPENAI_API_KEY",
        description="Key of the model endpoint, or several, separated by commas",
    )
    api_key_file: Path | None = Field(
        default=None,
        validation_alias="OPENAI_API_KEY_FILE",
        description="File of such keys, one a line, instead; it may be replaced while the service "
        "runs",
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
        default=0.0,
        description="Temperature of every agent that has none of its own, or none; never sent to "
        "models that take none",
    )
    tier: Tier = Field(
        default="standard",
        description="standard, or small for models of about 8 billion parameters and less: simpler "
        "calls, one thing at a time",
    )
    reasoning_effort: Effort | None = Field(
        default=None,
        description="How long models that think may do so: none, minimal, low, medium, high; "
        "unset: as little as the model allows, low for queries",
    )
    max_reply_tokens: ReplyTokens = Field(
        default=4096,
        description="Longest reply in tokens, sent with every call; models that think get room for "
        "that beside it",
    )
    reasoning_tokens: int = Field(
        default=8192,
        ge=0,
        le=MAX_REPLY_TOKENS,
        description="Room for what models think, on top of the reply",
    )
    extra_body: ExtraBody = Field(
        default_factory=dict,
        description="JSON that is merged into every request, such as "
        '{"chat_template_kwargs": {"enable_thinking": false}}',
    )
    schema_in_prompt: Literal["auto", "always", "never"] = Field(
        default="auto",
        description="Whether prompts describe the JSON that is asked for; auto: unless the "
        "provider shows its models the schema itself",
    )
    structured: StructuredMode | None = Field(
        default=None,
        description="How JSON is asked for: json_schema, json_object, or prompt (in words alone); "
        "unset: as the provider is known, or turns out, to take it",
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
    azure_api_key_file: Path | None = Field(
        default=None,
        validation_alias="AZURE_OPENAI_API_KEY_FILE",
        description="File of its keys, one a line, instead; it may be replaced while the service "
        "runs",
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
        default=_V1,
        validation_alias="OPENAI_API_VERSION",
        description="Its API version: v1, or a date for the older interface, such as 2024-10-21",
    )
    timeout_s: float = Field(
        default=120.0,
        gt=0,
        description="One attempt of a model call; it is not repeated if that is not enough",
    )
    stream_timeout_s: float = Field(default=300.0, gt=0, description="One streamed reply")
    stream_idle_timeout_s: float = Field(
        default=30.0, gt=0, description="Silence after which a streamed reply is given up"
    )
    max_attempts: int = Field(
        default=4,
        ge=1,
        le=10,
        description="Attempts of one model call while the endpoint says when to come back; 2 at "
        "most when it does not",
    )
    breaker_s: float = Field(
        default=5.0,
        gt=0,
        le=600,
        description="First pause of an endpoint that is down; it doubles up to a minute",
    )
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
        max_length=MAX_PROFILES,
        validation_alias="BOS_MODEL_KEYS",
        description='Keys by name of a profile: {"research": ["k1", "k2"]}, or with the only '
        'provider they are for and its address: {"eu": {"keys": ["k1"], "provider": "openai", '
        '"base_url": "https://eu.example/v1"}}',
    )
    key_profiles_file: Path | None = Field(
        default=None,
        validation_alias="BOS_MODEL_KEYS_FILE",
        description="File with such a JSON object instead; it may be replaced while the service "
        "runs",
    )
    key_set_aside_s: float = Field(
        default=300.0,
        ge=0,
        description="A key that was refused, or has no quota, is not used for this long while "
        "there is another one; and longest rest of one that is too busy",
    )
    key_files_refresh_s: float = Field(
        default=5.0, gt=0, description="Time between two looks at whether a file of keys changed"
    )
    prices: Mapping[str, ModelPrice] = Field(
        default_factory=dict,
        description="US dollars per million tokens, where they differ from the table of bos_llm: "
        '{"gpt-6-sol": {"input": 2, "cached_input": 0.2, "output": 10}}',
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
        sources = super().settings_customise_sources(
            settings_cls, init_settings, env_settings, dotenv_settings, file_secret_settings
        )
        return (*sources, NamedVariables(settings_cls, *sources[1:]))

    @model_validator(mode="after")
    def _profiles_are_in_one_place(self) -> Self:
        if self.key_profiles and self.key_profiles_file is not None:
            raise ValueError("BOS_MODEL_KEYS and BOS_MODEL_KEYS_FILE are set; remove one of them")
        return self

    def is_model_fixed(self, agent: str) -> bool:
        """Whether ``agent`` has a model or provider of its own, which no question can replace.

        With a provider of its own, its calls go where another agent's model need not be served.
        """
        return bool(self._of(agent, "MODEL") or self._of(agent, "MODEL_PROVIDER"))

    def get_agent_model_config(self, agent: str, choice: str = "") -> AgentModelConfig:
        """The provider, model and parameters of ``agent``.

        ``model`` is empty if none is set and the provider has no default.

        Args:
            agent: Its name.
            choice: Model that a question chose; taken unless that of the agent is fixed.

        Raises:
            ConfigurationError: a variable of the agent holds something else than it may, or
                ``<AGENT>_MODEL_KEYS`` names no profile that can be used.
        """
        provider = (self._of(agent, "MODEL_PROVIDER") or self.default_provider()).lower()
        chosen = "" if self.is_model_fixed(agent) else choice
        model = chosen or self._of(agent, "MODEL") or self.model
        if model is None:
            # A deployment of Azure may have any name, whichever variables it is reached by.
            known = provider == "openai" and recognise(self.base_url or "") != "azure"
            model = DEFAULT_MODELS.get(agent, DEFAULT_MODELS[""]) if known else ""
        temperature = self.temperature
        if "temperature" not in self.model_fields_set:
            temperature = _DEFAULT_TEMPERATURES.get(agent, temperature)
        keys = self._of(agent, "MODEL_KEYS") or ""
        if keys:
            try:
                self.access(provider, keys)
            except ConfigurationError as error:
                variable = variable_of(agent, "MODEL_KEYS")
                raise ConfigurationError(f"{variable}: {error.message}") from None
        effort = self.reasoning_effort or _default_effort(agent, provider, model)
        return AgentModelConfig(
            provider,
            model,
            self._own(agent, "TEMPERATURE", TEMPERATURE_TYPE, "a number from 0 to 2, or none")
            if self._of(agent, "TEMPERATURE")
            else temperature,
            keys,
            self._own(agent, "MODEL_TIER", TIER_TYPE, "standard or small") or self.tier,
            self._own(agent, "REASONING_EFFORT", EFFORT_TYPE, "one word, such as none or low")
            or effort,
            self._own(
                agent,
                "MAX_REPLY_TOKENS",
                REPLY_TOKENS_TYPE,
                f"a number from 64 to {MAX_REPLY_TOKENS}",
            )
            or self.max_reply_tokens,
            {**self.extra_body, **(self._own_body(agent) or {})},
        )

    def _own(self, agent: str, what: str, kind: TypeAdapter[V], wanted: str) -> V | None:
        """The agent's own variable as a value; None if it has none."""
        text = self._of(agent, what)
        if text is None:
            return None
        try:
            return kind.validate_python(text)
        except ValidationError:
            raise ConfigurationError(f"{variable_of(agent, what)}: must be {wanted}") from None

    def _own_body(self, agent: str) -> Mapping[str, Any] | None:
        text = self._of(agent, "EXTRA_BODY")
        if text is None:
            return None
        try:
            return EXTRA_BODY_TYPE.validate_python(json.loads(text))
        except ValueError as error:
            known = isinstance(error, ValidationError)
            problem = error.errors()[0]["msg"] if known else "must be a JSON object"  # type: ignore[attr-defined]
            raise ConfigurationError(f"{variable_of(agent, 'EXTRA_BODY')}: {problem}") from None

    def price_table(self) -> PriceTable:
        """Prices of models.

        Raises:
            ConfigurationError: ``BOS_MODEL_PRICES_FILE`` cannot be used.
        """
        return PriceTable.read(self.prices_file, self.prices)

    def access(self, provider: str, profile: str = "") -> Access:
        """Address and keys of ``provider``; what is missing is left empty, see :meth:`missing`.

        Args:
            provider: Its name.
            profile: The profile whose keys are used; empty for the provider's own variable.

        Raises:
            ConfigurationError: there is no such profile, or it is for another provider.
        """
        own = self._own_access(provider)
        if not profile:
            return own
        chosen = self.profile(provider, profile)
        base_url, version = chosen.base_url or own.base_url, own.api_version
        if provider == "azure":
            base_url, version = self._azure_address(chosen.base_url or self.azure_endpoint)
        return replace(
            own,
            keys=chosen.keys_in_order,
            base_url=base_url,
            api_version=version,
            key_variable="BOS_MODEL_KEYS",
            key_file=None,
            profile=profile,
            managed_identity=False,
        )

    def profile(self, provider: str, name: str) -> KeyProfile:
        """The profile ``name``, whose keys may be sent to ``provider``.

        Raises:
            ConfigurationError: there is no such profile, or it is for another provider.
        """
        file = self.key_profiles_file
        profiles = self.key_profiles if file is None else profiles_file(file).current()
        chosen = profiles.get(name)
        if chosen is None:
            raise ConfigurationError(
                f"there is no key profile {name!r} here; add it to BOS_MODEL_KEYS"
            )
        if chosen.provider and chosen.provider.lower() != provider:
            raise ConfigurationError(
                f"the key profile {name!r} is for {chosen.provider} only, and the model is one "
                f"of {provider}; choose another profile, or correct BOS_MODEL_KEYS"
            )
        return chosen

    def _own_access(self, provider: str) -> Access:
        if provider == "azure":
            endpoint, version = self._azure_address(self.azure_endpoint)
            return Access(
                provider,
                "azure",
                endpoint,
                keys_of(self.azure_api_key, self.azure_api_key_file, "AZURE_OPENAI_API_KEY"),
                "AZURE_OPENAI_ENDPOINT",
                "AZURE_OPENAI_API_KEY",
                version,
                key_file=self.azure_api_key_file,
                managed_identity=self.azure_auth == "managed_identity",
                client_id=self.azure_client_id,
            )
        kind: Literal["openai", "compatible"] = "openai" if provider == "openai" else "compatible"
        url, key = variable_of(provider, "BASE_URL"), variable_of(provider, "API_KEY")
        own_url = self._value(url)
        if provider in SHARED_VARIABLES or (
            own_url is None and provider == self.default_provider() and self.base_url is not None
        ):
            own_url, url, key = self.base_url, "OPENAI_BASE_URL", "OPENAI_API_KEY"
            secret, file = self.api_key, self.api_key_file
        else:
            given = self._value(f"{key}_FILE")
            secret, file = self.variables.get(key), Path(given) if given else None
        keys = keys_of(secret, file, key)
        return Access(provider, kind, own_url, keys, url, key, key_file=file)

    def _azure_address(self, endpoint: str | None) -> tuple[str | None, str]:
        """Where the client goes, and the version of the older interface; empty for v1."""
        if endpoint is None:
            return None, ""
        plain = endpoint.rstrip("/")
        if plain.endswith(f"/openai/{_V1}"):
            return endpoint, ""
        if self.azure_api_version == _V1:
            return f"{plain}/openai/{_V1}/", ""
        return endpoint, self.azure_api_version

    def missing(self, agent: str, config: AgentModelConfig) -> tuple[str, ...]:
        """Variables to set before ``agent`` can call its model; empty if none.

        Raises:
            ConfigurationError: as :meth:`access`.
        """
        access = self.access(config.provider, config.keys)
        if access.kind == "openai":
            # Its address is known, its models mostly, and its key is the short way in.
            if access.keys and not config.model:
                return ("BOS_MODEL",)
            return () if access.keys else ("OPENAI_API_KEY, or OPENAI_BASE_URL and BOS_MODEL",)
        missing = [] if access.base_url else [access.url_variable]
        if access.kind == "azure" and not access.keys and not access.managed_identity:
            missing.append(f"{access.key_variable} or AZURE_OPENAI_AUTH=managed_identity")
        if not config.model:
            missing.append(f"BOS_MODEL or {variable_of(agent, 'MODEL')}")
        return tuple(missing)

    def default_provider(self) -> str:
        """The provider of every agent that has none of its own.

        An address of another or unknown provider is not OpenAI's, key or not.
        """
        if self.provider is not None:
            return self.provider.lower()
        if self.base_url is not None:
            found = recognise(self.base_url)
            # Azure's v1 endpoint by OpenAI's variables speaks as OpenAI does.
            return "openai" if found == "azure" else found
        keyless = self.api_key is None and self.api_key_file is None
        return "azure" if keyless and self.azure_endpoint is not None else "openai"

    def _of(self, agent: str, what: str) -> str | None:
        return self._value(variable_of(agent, what))

    def _value(self, variable: str) -> str | None:
        secret = self.variables.get(variable)
        return None if secret is None else secret.get_secret_value()


def _default_effort(agent: str, provider: str, model: str) -> str | None:
    """As little thinking as the model allows; queries are worth a little."""
    if (
        provider not in ("openai", "azure")
        or not provider_row(provider).capabilities(model).reasons
    ):
        return None
    if agent in _THINKING_AGENTS or not _CAN_SKIP_THINKING.match(model.lower()):
        return "low"
    return "none"
