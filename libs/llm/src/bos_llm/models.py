"""The models of a process."""

from __future__ import annotations

import asyncio
import importlib
import random
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from bos_errors import ConfigurationError
from bos_llm.calling import Caller
from bos_llm.embeddings import EmbeddingModel
from bos_llm.endpoints.breaker import CircuitBreaker
from bos_llm.endpoints.capabilities import Ladder
from bos_llm.endpoints.observe import KeyObserver, ModelMetrics, Observer
from bos_llm.endpoints.profiles import (
    LiveProfiles,
    ProfileKeys,
    current_key_profile,
    key_file,
    profiles_file,
)
from bos_llm.endpoints.providers import provider_row
from bos_llm.endpoints.request import RequestWriter
from bos_llm.endpoints.retry import RetryPolicy
from bos_llm.errors import ModelNotConfigured
from bos_llm.model import Model, ModelCalls
from bos_llm.settings import ModelSettings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bos_chassis.telemetry import Telemetry
    from bos_llm.agent_config import Access, AgentModelConfig
    from bos_llm.endpoints.endpoint import Endpoint
    from bos_llm.endpoints.profiles import KeysNow
    from bos_llm.endpoints.providers import Capabilities

_MAX_CHOICES = 64
"""Models that questions may choose in the life of a process; the gateway offers 32 at once."""


class Models:
    """Models by agent, sharing one client per provider and profile; an async context manager.

    Clients are created on first use and closed on leaving. What is known of an endpoint, whether it
    is up and what it takes, is shared by all agents that call it.

    Args:
        settings: Where the models are.
        telemetry: Where calls are traced and counted.
        sleep: Waits before a retry; tests pass their own.
        jitter: A random number from 0 to 1.

    Raises:
        ConfigurationError: the file of prices, or that of key profiles, cannot be used.
    """

    def __init__(
        self,
        settings: ModelSettings,
        telemetry: Telemetry,
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.settings = settings
        if settings.key_profiles_file is not None:
            watched = profiles_file(
                settings.key_profiles_file, telemetry, settings.key_files_refresh_s
            )
            live = {"key_profiles": LiveProfiles(watched), "key_profiles_file": None}
            self.settings = settings = settings.model_copy(update=live)
        self._telemetry = telemetry
        self._prices = settings.price_table()
        self._metrics = ModelMetrics.of(telemetry.registry)
        self._retry = RetryPolicy(
            max_attempts=settings.max_attempts,
            timeout_s=settings.timeout_s,
            base_s=settings.retry_base_s,
            cap_s=settings.retry_cap_s,
            max_retry_after_s=settings.max_retry_after_s,
            sleep=sleep,
            jitter=jitter,
        )
        self._models: dict[str, Model] = {}
        self._calls_by_choice: dict[tuple[str, str], ModelCalls] = {}
        self._choices: set[str] = set()
        self._endpoints: dict[tuple[str, str, str], Endpoint] = {}
        self._breakers: dict[str, CircuitBreaker] = {}
        self._ladders: dict[tuple[str, str], Ladder] = {}
        self._sleep = sleep
        self._closed = False

    @property
    def configured(self) -> bool:
        """Whether agents without settings of their own can call a model."""
        return not self.settings.missing("", self.settings.get_agent_model_config(""))

    def for_agent(self, name: str) -> Model:
        """The model of the agent ``name``, the same object for the same name.

        It can be had without a key; its calls then raise ``ModelNotConfigured``.

        Raises:
            ConfigurationError: the agent's own settings are wrong.
        """
        model = self._models.get(name)
        if model is None:
            self._calls(name, "")  # wrong settings fail here, and not the first call
            calls_of = partial(self._calls, name)
            model = Model(name, self.settings, prices=self._prices, calls_of=calls_of)
            self._models[name] = model
        return model

    def embedding(self, agent: str, model: str) -> EmbeddingModel:
        """The embedding model ``model``, at the provider and with the keys of ``agent``.

        Raises:
            ConfigurationError: the agent's own settings are wrong.
        """
        config = replace(self.settings.get_agent_model_config(agent), model=model, temperature=None)
        return EmbeddingModel(
            config,
            self.settings,
            prices=self._prices,
            endpoint=lambda: self._endpoint(agent, config),
            retry=self._retry,
            observer=Observer(self._telemetry, self._metrics, agent, config),
        )

    def takes(self, agent: str) -> Capabilities:
        """Known capabilities of the model of ``agent`` by now."""
        return self._ladder(self.for_agent(agent).config).now

    def learnt(self, agent: str) -> list[str]:
        """What its endpoint turned out to take otherwise than it was known to, for people."""
        return [each.text for each in self._ladder(self.for_agent(agent).config).lessons]

    def endpoint_of(self, agent: str) -> Endpoint:
        """The endpoint that ``agent`` calls, for operators.

        Raises:
            ModelNotConfigured: a variable is missing.
        """
        return self._endpoint(agent, self.for_agent(agent).config)

    async def __aenter__(self) -> Self:
        if self.configured:
            # The client package takes a second to import; better now than in the first question.
            await asyncio.to_thread(importlib.import_module, "bos_llm.endpoints.endpoint")
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._closed = True
        endpoints = list(self._endpoints.values())
        self._endpoints.clear()
        await asyncio.gather(*(endpoint.close() for endpoint in endpoints))

    def _calls(self, agent: str, choice: str) -> ModelCalls:
        """The calls of ``agent`` to the model that a question chose; an empty choice: to its own.

        Raises:
            ConfigurationError: settings are wrong, or too many models were chosen by now.
        """
        calls = self._calls_by_choice.get((agent, choice))
        if calls is None:
            if choice and self.settings.is_model_fixed(agent):
                return self._calls(agent, "")
            self._admit(choice)
            config = self.settings.get_agent_model_config(agent, choice)
            caller = Caller(
                RequestWriter(config, self.settings),
                lambda endpoint: self._ladder(config, endpoint),
                self.settings,
                lambda: self._endpoint(agent, config),
                self._retry,
            )
            observer = Observer(self._telemetry, self._metrics, agent, config)
            calls = self._calls_by_choice[agent, choice] = ModelCalls(config, caller, observer)
        return calls

    def _admit(self, choice: str) -> None:
        """Each model keeps what is known of it and makes time series, so there is a bound."""
        if len(self._choices) >= _MAX_CHOICES and choice not in self._choices:
            raise ConfigurationError(
                f"Questions chose more than {_MAX_CHOICES} models since this service started; "
                "restart it"
            )
        self._choices.add(choice)

    def _ladder(self, config: AgentModelConfig, endpoint: Endpoint | None = None) -> Ladder:
        """What is known of the model where it is served; None: where its own settings say."""
        access = endpoint.access if endpoint else None
        access = access or self.settings.access(config.provider, config.keys)
        where = access.base_url or config.provider
        key = (where, config.model)
        if key not in self._ladders:
            start = provider_row(config.provider).capabilities(config.model)
            self._ladders[key] = Ladder(start, self.settings.structured)
        return self._ladders[key]

    def _endpoint(self, agent: str, config: AgentModelConfig) -> Endpoint:
        if self._closed:
            raise RuntimeError("Models is closed")
        # A task that names a profile gets that one or none.
        config = replace(config, keys=current_key_profile() or config.keys)
        # Its address may change with the file that the profile is in; its keys do so by themselves.
        profile = self.settings.profile(config.provider, config.keys) if config.keys else None
        key = (config.provider, config.keys, (profile and profile.base_url) or "")
        endpoint = self._endpoints.get(key)
        if endpoint is None:
            missing = self.settings.missing(agent, config)
            if missing:
                raise ModelNotConfigured(
                    f"No model is configured for {agent!r}: set {' and '.join(missing)}.",
                    metadata={"agent": agent, "provider": config.provider},
                )
            from bos_llm.endpoints.endpoint import Endpoint

            access = self.settings.access(config.provider, config.keys)
            where = access.base_url or access.provider
            breaker = self._breakers.setdefault(
                where, CircuitBreaker(open_s=self.settings.breaker_s)
            )
            endpoint = self._endpoints[key] = Endpoint(
                access,
                key_file=self._key_file(access),
                set_aside_s=self.settings.key_set_aside_s,
                on_rest=KeyObserver(self._telemetry, self._metrics, access),
                breaker=breaker,
                sleep=self._sleep,
            )
        return endpoint

    def _key_file(self, access: Access) -> KeysNow | None:
        profiles = self.settings.key_profiles
        if access.profile and isinstance(profiles, LiveProfiles):
            return ProfileKeys(profiles, access.profile)
        if access.key_file is None:
            return None
        refresh_s = self.settings.key_files_refresh_s
        return key_file(access.key_file, access.key_variable, self._telemetry, refresh_s)


def open_models(_: Any, telemetry: Telemetry) -> Models:
    """Need of a service that calls models, for ``bos_chassis.process.main``.

    Raises:
        ConfigurationError: a setting is missing or wrong.
    """
    return Models(ModelSettings.load(), telemetry)
