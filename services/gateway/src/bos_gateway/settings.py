"""Settings of the gateway."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import NoDecode, SettingsConfigDict

from bos.runlog.v1 import RunSettings
from bos_chassis.errors import ConfigurationError
from bos_chassis.settings import AuthSettings, ServerSettings, Settings, TelemetrySettings
from bos_gateway.budget import MAX_RUN_TOKENS, freeze_shares
from bos_gateway.run_secrets import SecretsKeyRing


class GatewaySettings(Settings):
    """Everything the gateway can be told. Times are in seconds, sizes in bytes."""

    model_config = SettingsConfigDict(env_prefix="BOS_GATEWAY_")

    server: ServerSettings = Field(default_factory=ServerSettings.load)
    telemetry: TelemetrySettings = Field(default_factory=TelemetrySettings.load)
    auth: AuthSettings = Field(default_factory=AuthSettings.load)

    store_url: str = Field(min_length=1, description="PostgreSQL URL of the run log")
    planner_target: str = Field(min_length=1, description="Where the planner listens")
    composer_target: str = Field(min_length=1, description="Where the composer listens")
    agent_targets: Annotated[dict[str, str], NoDecode] = Field(
        description="Agents as name=target, separated by commas, such as sql=dns:///sql:8080"
    )
    run_token_private_key: SecretStr | None = Field(
        default=None, description="Ed25519 private key (PEM) that signs run tokens"
    )

    secrets_keys: SecretStr | None = Field(
        default=None,
        description="Keys that encrypt the credentials of runs as id=base64, separated by commas; "
        "the first encrypts, all decrypt; a key is 32 bytes, as of `openssl rand -base64 32`",
    )

    artefacts_url: str | None = Field(
        default=None,
        min_length=1,
        description="Where files of steps go: file:///folder, shared by all gateways, or "
        "s3://bucket/prefix; unset: no files",
    )
    max_result_bytes: int = Field(
        default=2097152,
        ge=262144,
        le=2097152,
        description="Largest result of a step; larger ones are cut",
    )
    max_run_result_bytes: int = Field(
        default=16777216,
        ge=262144,
        description="Results and inputs of all steps of a run that are held in memory; beyond it "
        "results are cut to 256 KiB",
    )
    max_held_result_bytes: int = Field(
        default=536870912,
        ge=0,
        description="The same of all runs of this replica together",
    )
    max_waiting_file_bytes: int = Field(
        default=134217728,
        ge=6291456,
        description="Files of all steps that are held in memory until their results have come; "
        "beyond it files are left out",
    )

    max_active_runs: int = Field(default=256, ge=1, description="Runs at once on this replica")
    max_active_runs_per_user: int = Field(
        default=32,
        ge=0,
        description="Unfinished runs of one account over all replicas, beside those that wait for "
        "an approval; 0: no bound",
    )
    max_waiting_runs_per_user: int = Field(
        default=256,
        ge=0,
        description="Runs of one account that may wait for an approval before it gets no more runs "
        "accepted; 0: no bound",
    )
    max_streams: int = Field(
        default=800, ge=1, description="Calls that follow a run at the same time on this replica"
    )
    max_streams_per_user: int = Field(
        default=100, ge=0, description="Such calls of one account on this replica; 0: no bound"
    )
    max_run_tokens: int = Field(
        default=0,
        ge=0,
        le=MAX_RUN_TOKENS,
        description="Model tokens that a run may consume; 0: no bound",
    )
    max_user_day_tokens: int = Field(
        default=0,
        ge=0,
        description="Model tokens that the runs of one account may consume in a day (UTC) over all "
        "replicas; needs BOS_GATEWAY_MAX_RUN_TOKENS; 0: no bound",
    )
    max_day_tokens: int = Field(
        default=0,
        ge=0,
        description="The same for everybody together, those without an account included",
    )
    key_profiles: Annotated[dict[str, str], NoDecode] = Field(
        default_factory=dict,
        description="Key profiles (BOS_MODEL_KEYS of the agents) that steps must use, as "
        "agent=profile, separated by commas; * stands for every other agent",
    )
    max_context_bytes: int = Field(default=65536, ge=1024, description="Largest request context")
    run_timeout_s: float = Field(default=300.0, gt=0, description="Time a run may take")
    plan_timeout_s: float = Field(default=60.0, gt=0, description="Time planning may take")
    compose_timeout_s: float = Field(default=60.0, gt=0, description="Time composing may take")
    agent_timeout_s: float = Field(
        default=60.0, gt=0, description="Time a step may take whose agent's card sets none"
    )
    max_concurrency: int = Field(default=16, ge=1, description="Steps of a run at the same time")
    max_steps: int = Field(default=24, ge=1, le=64, description="Most steps of a plan")
    max_revisions: int = Field(default=2, ge=0, le=10, description="Times a plan may be revised")
    max_clarification_turns: int = Field(
        default=5,
        ge=1,
        le=20,
        description="Rounds of clarifying questions; after them no agent may ask any more",
    )
    fallback_agent: str = Field(
        default="sql", description="Agent that stands in when no keyword matches"
    )
    backoff_s: float = Field(default=0.2, ge=0, description="Wait before the second attempt")
    backoff_multiplier: float = Field(default=2.0, ge=1, description="Growth of that wait")
    confidence_threshold: float = Field(
        default=0.5, ge=0, le=1, description="Below it planning counts as uncertain"
    )
    delta_window_s: float = Field(
        default=0.015, ge=0, description="Answer text is gathered this long into one piece"
    )
    approval_timeout_s: float = Field(
        default=120.0, ge=1, le=2592000, description="Time to decide about a proposed action"
    )
    approval_timeouts: Annotated[dict[str, float], NoDecode] = Field(
        default_factory=dict,
        description="The same for single tools as tool=seconds, separated by commas",
    )
    lease_s: float = Field(default=3.0, gt=0.5, description="Life of this replica's lease")
    lease_renewal_s: float = Field(default=1.0, gt=0, description="Time between two renewals")
    hold_off_s: float = Field(
        default=2.0,
        gt=0,
        description="Back-off of a run after its first failure; doubled with each, at most 600",
    )
    max_failures: int = Field(
        default=5,
        ge=1,
        description="Failures of a run without its getting further after which it is given up; "
        "the death of its gateway is one",
    )
    retention_days: float | None = Field(
        default=None, gt=0, description="Runs are deleted this long after their end; unset: never"
    )
    upkeep_interval_s: float = Field(
        default=10.0, gt=0, description="Time between two looks for what is to be deleted"
    )
    memory_target: str | None = Field(
        default=None,
        min_length=1,
        description="Where memory listens; unset: questions stand alone and nothing is remembered",
    )
    memory_timeout_s: float = Field(
        default=0.3, gt=0, description="Time a question waits for memory before it goes on without"
    )
    memory_history_messages: int = Field(
        default=8,
        ge=0,
        le=32,
        description="Messages of its conversation that a question builds on, a summary included",
    )
    memory_extraction_timeout_s: float = Field(
        default=25.0, gt=0, description="Time for memory to look for personal facts in a question"
    )
    describe_interval_s: float = Field(
        default=15.0, gt=0, description="Time between two looks at every agent's card"
    )

    @field_validator("agent_targets", mode="before")
    @classmethod
    def _parse_targets(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        targets: dict[str, str] = {}
        for entry in filter(None, (part.strip() for part in value.split(","))):
            name, separator, target = entry.partition("=")
            if not separator or not name.strip() or not target.strip():
                raise ValueError(f'"{entry}" is not of the form name=target')
            targets[name.strip()] = target.strip()
        return targets

    @field_validator("key_profiles", mode="before")
    @classmethod
    def _parse_profiles(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        found: dict[str, str] = {}
        for entry in filter(None, (part.strip() for part in value.split(","))):
            agent, separator, profile = (part.strip() for part in entry.partition("="))
            if not separator or not agent or not profile or len(profile) > 128:
                raise ValueError(f'"{entry}" is not of the form agent=profile')
            found[agent] = profile
        return found

    @field_validator("approval_timeouts", mode="before")
    @classmethod
    def _parse_timeouts(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        found: dict[str, str] = {}
        for entry in filter(None, (part.strip() for part in value.split(","))):
            name, separator, seconds = entry.partition("=")
            if not separator or not name.strip():
                raise ValueError(f'"{entry}" is not of the form tool=seconds')
            found[name.strip()] = seconds.strip()
        return found

    @field_validator("approval_timeouts")
    @classmethod
    def _check_timeouts(cls, value: dict[str, float]) -> dict[str, float]:
        for name, seconds in value.items():
            if not 1 <= seconds <= 2592000:
                raise ValueError(f"the time for {name} must be from 1 to 2592000 seconds")
        return value

    @field_validator("secrets_keys")
    @classmethod
    def _check_keys(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            try:
                SecretsKeyRing.parse(value.get_secret_value())
            except ConfigurationError as error:
                raise ValueError(error.message) from None
        return value

    @model_validator(mode="after")
    def _lease_outlives_renewals(self) -> Self:
        if self.lease_s < 2 * self.lease_renewal_s:
            raise ValueError(
                "BOS_GATEWAY_LEASE_S must be at least twice BOS_GATEWAY_LEASE_RENEWAL_S"
            )
        return self

    @model_validator(mode="after")
    def _days_have_runs_with_a_budget(self) -> Self:
        # What a run may consume is held when it is accepted; without a bound, that is anything.
        if (self.max_user_day_tokens or self.max_day_tokens) and not self.max_run_tokens:
            raise ValueError(
                "BOS_GATEWAY_MAX_USER_DAY_TOKENS and BOS_GATEWAY_MAX_DAY_TOKENS need "
                "BOS_GATEWAY_MAX_RUN_TOKENS: the most that one run may take of a day"
            )
        return self

    def secrets_key_ring(self) -> SecretsKeyRing | None:
        """The keys that encrypt credentials, if there are any."""
        keys = self.secrets_keys
        return SecretsKeyRing.parse(keys.get_secret_value()) if keys else None

    def run_settings(self) -> RunSettings:
        """The limits as they are frozen into a run."""
        settings = RunSettings(
            max_concurrency=self.max_concurrency,
            max_revisions=self.max_revisions,
            max_steps=self.max_steps,
            fallback_agent=self.fallback_agent,
            backoff_multiplier=self.backoff_multiplier,
            confidence_threshold=self.confidence_threshold,
            max_tokens=self.max_run_tokens,
            api_keys_config_refs=self.key_profiles,
            max_clarification_turns=self.max_clarification_turns,
        )
        freeze_shares(settings)
        settings.plan_timeout.FromMilliseconds(int(self.plan_timeout_s * 1000))
        settings.compose_timeout.FromMilliseconds(int(self.compose_timeout_s * 1000))
        return settings
