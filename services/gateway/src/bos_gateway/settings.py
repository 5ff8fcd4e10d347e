"""Settings of the gateway."""

from __future__ import annotations

from datetime import timedelta
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)
from pydantic_settings import NoDecode, SettingsConfigDict

from bos.runlog.v1 import RunSettings
from bos_chassis.auth.access import AccessSettings, ToolPattern
from bos_chassis.settings import AuthSettings, ServerSettings, Settings, TelemetrySettings
from bos_errors import ConfigurationError
from bos_gateway.core.budget import MAX_RUN_TOKENS, freeze_shares
from bos_gateway.key_ring import SecretsKeyRing
from bos_gateway.permits import audiences
from bos_gateway.permits.approvers import ApproverRule
from bos_gateway.permits.connections import connections_problem
from bos_gateway.request_calendar import Calendar, is_time_zone
from bos_http import HttpPolicy
from bos_postgres.audit import AuditSettings


def _printable(value: str) -> str:
    if not value.isprintable():
        raise ValueError("holds a character that cannot be seen; remove it")
    return value


def _time_zone(value: str) -> str:
    if not is_time_zone(value):
        raise ValueError("must be an IANA name such as Europe/Berlin")
    return value


Text = Annotated[str, Field(min_length=1)]
Positive = Annotated[int, Field(ge=1)]
NotNegative = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(gt=0)]
ApprovalSeconds = Annotated[float, Field(ge=1, le=2592000)]
MAX_WEBHOOK_URL_CHARS = 2048
Profile = Annotated[str, Field(max_length=128)]
ModelName = Annotated[str, Field(max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]*$")]
# No hidden characters: users choose by it.
ModelLabel = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_printable)]
_MAX_MODELS = 32


def _pairs(form: str) -> BeforeValidator:
    """Reads a map as a variable holds it: pairs of this form, separated by commas."""

    def read(value: object) -> object:
        if not isinstance(value, str):
            return value
        found: dict[str, str] = {}
        for entry in filter(None, map(str.strip, value.split(","))):
            name, _, meant = map(str.strip, entry.partition("="))
            if not name or not meant:
                raise ValueError(f'"{entry}" is not of the form {form}')
            found[name] = meant
        return found

    return BeforeValidator(read)


def _labelled(value: object) -> object:
    """Reads names with labels: ``name=label`` or ``name``, separated by commas."""
    if not isinstance(value, str):
        return value
    found: dict[str, str] = {}
    for entry in filter(None, map(str.strip, value.split(","))):
        name, _, label = map(str.strip, entry.partition("="))
        if name in found:
            raise ValueError(f'names "{name}" twice')
        found[name] = label or name
    return found


def _listed(value: object) -> object:
    """Reads a list as a variable holds it, separated by commas."""
    return (
        tuple(filter(None, map(str.strip, value.split(",")))) if isinstance(value, str) else value
    )


_NAMES = BeforeValidator(_listed)


class GatewaySettings(Settings):
    """Settings ``BOS_GATEWAY_…``. Times are in seconds, sizes in bytes."""

    model_config = SettingsConfigDict(env_prefix="BOS_GATEWAY_", use_attribute_docstrings=True)

    server: ServerSettings = Field(default_factory=ServerSettings.load)
    telemetry: TelemetrySettings = Field(default_factory=TelemetrySettings.load)
    auth: AuthSettings = Field(default_factory=AuthSettings.load)
    access: AccessSettings = Field(default_factory=AccessSettings.load)
    audit: AuditSettings = Field(default_factory=AuditSettings.load)

    store_url: Text
    """PostgreSQL URL of the run log"""
    planner_target: Text
    """Address of the planner"""
    composer_target: Text
    """Address of the composer"""
    agent_targets: Annotated[dict[str, str], NoDecode, _pairs("name=target")]
    """Agents as name=target, separated by commas, such as sql=dns:///sql:8080"""
    run_token_private_key: SecretStr | None = None
    """Ed25519 private key (PEM) that signs run tokens"""
    run_token_private_keys_file: Path | None = None
    """File of such keys, one after another, instead: the first signs, tokens of all are accepted;
    the file may be replaced while the gateway runs"""
    agent_audiences: dict[str, tuple[str, ...]] = Field(
        default_factory=lambda: {name: tuple(each) for name, each in audiences.DEFAULT.items()}
    )
    """Services that agents may call for their steps, as JSON such as {"sql": ["mcp_db"], "*": []};
    * stands for every other agent; an agent gets of them what its card asks for"""
    agent_connections: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Kinds of users' connections whose secrets steps of an agent are given, as JSON such as
    {"mail": ["mail.imap"]}; an agent gets of them what its card asks for, others get none"""
    secrets_keys: SecretStr | None = None
    """Keys that encrypt the credentials of runs and secrets of webhooks, as id=base64, separated by
    commas; the first encrypts, all decrypt; a key is 32 bytes, as of `openssl rand -base64 32`"""

    artefacts_url: str | None = Field(default=None, min_length=1)
    """Store of steps' files: file:///folder, shared by all gateways, or s3://bucket/prefix; unset:
    no files"""
    max_result_bytes: int = Field(default=2097152, ge=262144, le=2097152)
    """Largest result of a step; larger ones are truncated"""
    max_run_result_bytes: int = Field(default=16777216, ge=262144)
    """Results and inputs of all steps of a run in memory; beyond it results are truncated to
    256 KiB"""
    max_held_result_bytes: NotNegative = 536870912
    """The same of all runs of this replica together"""
    max_waiting_file_bytes: int = Field(default=134217728, ge=6291456)
    """Files of all steps that are held in memory until their results have come; beyond it files
    are left out"""
    max_input_file_bytes: int = Field(default=4194304, ge=0, le=6291456)
    """Files of earlier steps that a step is sent, all together, if its agent takes files; the
    content of those beyond it is left out, and why is stated"""

    max_active_runs: Positive = 256
    """Concurrent runs on this replica"""
    max_active_runs_per_user: NotNegative = 32
    """Unfinished runs of one account over all replicas, beside those that wait for an approval;
    0: no limit"""
    max_waiting_runs_per_user: NotNegative = 256
    """Runs of one account that may wait for an approval before further ones are refused; 0: no
    limit"""
    max_streams: Positive = 800
    """Calls that follow a run at the same time on this replica"""
    max_streams_per_user: NotNegative = 100
    """Such calls of one account on this replica; 0: no limit"""
    max_run_tokens: int = Field(default=0, ge=0, le=MAX_RUN_TOKENS)
    """Model tokens that a run may consume; 0: no limit"""
    max_user_day_tokens: NotNegative = 0
    """Model tokens that the runs of one account may consume in a day (UTC) over all replicas; needs
    BOS_GATEWAY_MAX_RUN_TOKENS; 0: no limit"""
    max_day_tokens: NotNegative = 0
    """The same for all callers together, anonymous ones included"""
    key_profiles: Annotated[dict[str, Profile], NoDecode, _pairs("agent=profile")] = Field(
        default_factory=dict
    )
    """Key profiles (BOS_MODEL_KEYS of the agents) that steps must use, as agent=profile, separated
    by commas; * stands for every other agent"""

    models: Annotated[dict[ModelName, ModelLabel], NoDecode, BeforeValidator(_labelled)] = Field(
        default_factory=dict, max_length=_MAX_MODELS
    )
    """Models that a question may choose, as name or name=label, separated by commas, such as
    gpt-6-sol=Thorough, gpt-6-luna; the endpoints of planner, composer and agents have to serve
    each. Empty: none, and the models of their settings answer"""

    secret_context_keys: Annotated[tuple[Text, ...], NoDecode, _NAMES] = (
        *("api_headers", "api_bearer_token", "firebase_id_token", "firebase_web_api_key"),
        *("firebase_email", "firebase_password"),
    )
    """Keys of request contexts, separated by commas, that hold credentials, beside those that
    agents' cards declare: taken out at any depth, also while the agents are away"""
    token_files_folder: Path | None = None
    """Folder whose files requests may name as `api_token_file`; unset: such requests are refused"""
    max_context_bytes: int = Field(default=65536, ge=1024)
    """Largest request context"""
    time_zone: Annotated[str, AfterValidator(_time_zone)] = "UTC"
    """Time zone of "today", such as Europe/Berlin; `time_zone` of a request's context precedes"""
    first_day_of_week: Literal["monday", "saturday", "sunday"] = "monday"
    """First day of a week"""
    fiscal_year_first_month: Annotated[int, Field(ge=1, le=12)] = 1
    """First month of the fiscal year, which quarters follow, from 1 for January to 12"""
    run_timeout_s: Seconds = 300.0
    """Time a run may take"""
    plan_timeout_s: Seconds = 60.0
    """Time planning may take"""
    compose_timeout_s: Seconds = 60.0
    """Time composing may take"""
    agent_timeout_s: Seconds = 60.0
    """Time a step may take whose agent's card sets none"""
    max_concurrency: Positive = 16
    """Steps of a run at the same time"""
    max_steps: int = Field(default=24, ge=1, le=64)
    """Largest number of steps of a plan"""
    max_revisions: int = Field(
        default=2,
        ge=0,
        le=10,
        validation_alias=AliasChoices("BOS_GATEWAY_MAX_REVISIONS", "MAX_REVISIONS"),
    )
    """Times a plan may be revised"""
    max_clarification_turns: int = Field(default=5, ge=1, le=20)
    """Rounds of clarifying questions; after them agents may not ask again"""
    fallback_agent: str = "sql"
    """Agent of the heuristic plan when no keyword matches"""
    backoff_s: float = Field(default=0.2, ge=0)
    """Wait before the second attempt"""
    backoff_multiplier: float = Field(default=2.0, ge=1)
    """Factor by which that wait grows"""
    confidence_threshold: float = Field(default=0.5, ge=0, le=1)
    """Below it planning counts as uncertain"""
    restart_wait_s: float = Field(default=15.0, ge=0, le=300)
    """Time for which calls of an unreachable planner, composer, agent or service of an agent are
    retried before that counts as a failure; within the time of the call or step"""
    delta_window_s: float = Field(default=0.015, ge=0)
    """Time for which text of the answer is gathered into one piece"""
    approval_timeout_s: ApprovalSeconds = Field(
        default=120.0,
        validation_alias=AliasChoices("BOS_GATEWAY_APPROVAL_TIMEOUT_S", "HITL_TIMEOUT_SECONDS"),
    )
    """Time to decide a proposed action"""
    approval_timeouts: Annotated[dict[str, ApprovalSeconds], NoDecode, _pairs("tool=seconds")] = (
        Field(default_factory=dict)
    )
    """The same for single tools as tool=seconds, separated by commas"""
    approvers: dict[ToolPattern, ApproverRule] = Field(default_factory=dict, max_length=1000)
    """Who may answer requests beside the run's owner, by tool, as JSON: {"mail.send": {"roles":
    ["approver"], "groups": ["finance"], "four_eyes": true}}; agent.* and * stand for several tools;
    four_eyes: the run's owner may deny, and not approve"""

    lease_s: float = Field(default=3.0, gt=0.5)
    """Duration of this replica's lease"""
    lease_renewal_s: Seconds = 1.0
    """Time between two renewals"""
    hold_off_s: Seconds = 2.0
    """Back-off of a run after its first failure; doubled with each, at most 600"""
    max_failures: Positive = 5
    """Failures of a run without progress after which it is ended; the death of its gateway counts
    as one"""
    retention_days: float | None = Field(default=None, gt=0)
    """Runs are deleted this long after their end; unset: never"""
    maintenance_interval_s: Seconds = 10.0
    """Interval of the search for rows to delete"""

    memory_target: str | None = Field(default=None, min_length=1)
    """Address of memory; unset: questions stand alone and nothing is remembered"""
    memory_timeout_s: Seconds = 0.3
    """Time a question waits for memory before it continues without"""
    memory_history_messages: int = Field(default=8, ge=0, le=32)
    """Messages of its conversation that a question builds on, a summary included"""
    memory_extraction_timeout_s: Seconds = 25.0
    """Time for memory to look for personal facts in a question"""
    describe_interval_s: Seconds = 15.0
    """Interval at which agents' cards are read"""

    max_verified_queries: int = Field(default=500, ge=0, le=5000)
    """Verified queries that one user keeps for itself, and that one group has; 0: none can be
    added"""

    max_webhooks_per_user: int = Field(default=10, ge=0, le=100)
    """Webhooks of one account; 0: none can be added, and nothing is posted"""
    webhook_allow_http: bool = False
    """Allow webhook addresses of public hosts without TLS"""
    webhook_internal_origins: dict[str, tuple[IPv4Network | IPv6Network, ...]] = Field(
        default_factory=dict
    )
    """Origins inside the network that webhooks may have, as JSON such as
    {"http://hooks.corp:8080": ["10.1.0.0/16"]}, each with the networks that its addresses must be
    in; all other private addresses are refused"""
    webhook_timeout_s: float = Field(default=15.0, gt=0, le=60)
    """Time that a receiver has to answer an event"""
    webhook_backoff_s: Seconds = 5.0
    """Wait after the first failed attempt to post an event; doubled with each"""
    webhook_backoff_cap_s: Seconds = 3600.0
    """Longest of these waits"""
    webhook_give_up_s: Seconds = 86400.0
    """Time since the first attempt after which a failing event is not attempted again"""
    webhook_max_body_bytes: int = Field(default=262144, ge=65536, le=1048576)
    """Largest event; larger fields are left out, and its receiver can fetch the run"""
    max_webhook_attempts: int = Field(default=16, ge=1, le=50)
    """Concurrent attempts to post events on this replica"""
    max_webhook_attempts_per_origin: int = Field(default=4, ge=1)
    """The same to one scheme, host and port, so that a slow receiver does not hold up others"""
    webhook_poll_s: Seconds = 1.0
    """Interval of the search for events to post"""
    webhook_history_days: float = Field(default=7.0, gt=0)
    """Time for which deliveries are listed after their end"""

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
    def _fit_together(self) -> Self:
        self.webhook_policy()  # raises for what is no origin
        if self.lease_s < 2 * self.lease_renewal_s:
            raise ValueError(
                "BOS_GATEWAY_LEASE_S must be at least twice BOS_GATEWAY_LEASE_RENEWAL_S"
            )
        if self.run_token_private_key is not None and self.run_token_private_keys_file is not None:
            raise ValueError(
                "BOS_GATEWAY_RUN_TOKEN_PRIVATE_KEY and BOS_GATEWAY_RUN_TOKEN_PRIVATE_KEYS_FILE "
                "exclude each other"
            )
        if problem := audiences.agents_problem(self.agent_targets):
            raise ValueError(problem)
        if problem := audiences.audiences_problem(self.agent_audiences, self.agent_targets):
            raise ValueError(problem)
        if problem := connections_problem(self.agent_connections, self.agent_targets):
            raise ValueError(problem)
        # What a run may consume is held when it is accepted; without a bound, that is anything.
        if (self.max_user_day_tokens or self.max_day_tokens) and not self.max_run_tokens:
            raise ValueError(
                "BOS_GATEWAY_MAX_USER_DAY_TOKENS and BOS_GATEWAY_MAX_DAY_TOKENS need "
                "BOS_GATEWAY_MAX_RUN_TOKENS: the most that one run may take of a day"
            )
        return self

    def webhook_policy(self) -> HttpPolicy:
        """Where events may be posted: any public host, and the origins that the operator names."""
        return HttpPolicy(
            hosts=("*",),
            allow_http=self.webhook_allow_http,
            internal_origins=self.webhook_internal_origins,
            methods=("POST",),
            max_redirects=0,
            total_timeout_s=self.webhook_timeout_s,
            max_url_chars=MAX_WEBHOOK_URL_CHARS,
            max_request_bytes=self.webhook_max_body_bytes,
            max_connections=self.max_webhook_attempts,
            user_agent="bos-webhooks",
        )

    def secrets_key_ring(self) -> SecretsKeyRing | None:
        """The keys that encrypt credentials, if there are any."""
        keys = self.secrets_keys
        return SecretsKeyRing.parse(keys.get_secret_value()) if keys else None

    @property
    def calendar(self) -> Calendar:
        """Time zone, week and fiscal year of requests that name none."""
        return Calendar(self.time_zone, self.first_day_of_week, self.fiscal_year_first_month)

    def run_settings(self) -> RunSettings:
        """The limits as they are frozen into a run."""
        settings = RunSettings(
            plan_timeout=timedelta(seconds=self.plan_timeout_s),
            compose_timeout=timedelta(seconds=self.compose_timeout_s),
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
        return settings
