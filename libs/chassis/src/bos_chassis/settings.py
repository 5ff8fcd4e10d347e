"""Settings: the only place where the environment is read.

A service composes its settings from these parts::

    class GatewaySettings(Settings):
        model_config = SettingsConfigDict(env_prefix="BOS_GATEWAY_")

        server: ServerSettings = Field(default_factory=ServerSettings.load)
        max_steps: int = Field(default=20, ge=1, description="Steps that one plan may hold")

``BOS_GATEWAY_MAX_STEPS`` sets a field, ``BOS_GATEWAY_SERVER__PORT`` a field of a part, and
``BOS_SERVER_GRACE_S`` the same part in every service of the process.
"""

from __future__ import annotations

import ipaddress
from contextlib import contextmanager
from contextvars import ContextVar
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import BaseModel, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from bos_chassis.names import MAX_NAMES, USER, GroupName, Role
from bos_errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pydantic_core import ErrorDetails
    from pydantic_settings import PydanticBaseSettingsSource

_NESTED = "__"

Source = Literal["environment", "file"]
"""Where settings come from: the environment, or the file ``.env`` of the working directory."""
_only: ContextVar[Source | None] = ContextVar("bos_settings_source", default=None)


@contextmanager
def settings_from(source: Source) -> Iterator[None]:
    """Settings that are loaded inside come from one source alone.

    For commands, which people start in folders of others: there a ``.env`` would say where
    credentials of the environment go.
    """
    reset = _only.set(source)
    try:
        yield
    finally:
        _only.reset(reset)


class Settings(BaseSettings):
    """Frozen settings from keyword arguments, environment and ``.env``, in this order of weight.

    Variables are the prefix plus the field's name in upper case. An empty variable counts as unset.
    """

    model_config = SettingsConfigDict(
        env_prefix="BOS_",
        env_nested_delimiter=_NESTED,
        env_file=".env",
        env_file_encoding="utf-8",
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        populate_by_name=True,
        validate_default=True,
        hide_input_in_errors=True,
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
        """What is given, then environment and ``.env``, or what :func:`settings_from` says."""
        found = {"environment": env_settings, "file": dotenv_settings}
        only = _only.get()
        wanted = (each for name, each in found.items() if only in (None, name))
        sources = [each for each in wanted if _may_hold(each, settings_cls)]
        _refuse_contradictions(settings_cls, sources)
        return (init_settings, *sources)

    @classmethod
    def load(cls, **overrides: Any) -> Self:
        """Read the settings; ``overrides`` win over every other source.

        Raises:
            ConfigurationError: names every wrong or missing variable and what it must hold.
        """
        try:
            return cls(**overrides)
        except ValidationError as error:
            problems = [_explain(cls, problem) for problem in error.errors(include_url=False)]
        except SettingsError:
            # Raised for text that is not JSON where a list or a map is expected; its text holds the
            # field's name only in prose, so the candidates are listed instead.
            names = ", ".join(_structured_variables(cls))
            problems = [f"one of {names} is not valid JSON; write lists and maps as JSON"]
        # `from None`: the original error could hold the refused value, which may be a secret.
        raise ConfigurationError("Configuration is not usable. " + "; ".join(problems)) from None


def _refuse_contradictions(
    settings_cls: type[BaseSettings], sources: Sequence[PydanticBaseSettingsSource]
) -> None:
    """Refuse two names of one setting that hold different texts: both were set on purpose."""
    known: dict[str, str] = {}
    for each in reversed(sources):
        if isinstance(each, EnvSettingsSource):
            known |= {name: text for name, text in each.env_vars.items() if text}
    for field in settings_cls.model_fields.values():
        names = map(str, getattr(field.validation_alias, "choices", ()))
        found = {name: known[name.lower()] for name in names if name.lower() in known}
        if len(set(found.values())) > 1:
            raise ConfigurationError(
                f"Configuration is not usable. {' and '.join(found)} mean the same and are set to "
                "different values; set one of them"
            )


def _may_hold(source: PydanticBaseSettingsSource, settings_cls: type[BaseSettings]) -> bool:
    """Whether a source has a variable with the prefix: looking up each field costs milliseconds."""
    fields = settings_cls.model_fields.values()
    if not isinstance(source, EnvSettingsSource) or any(each.validation_alias for each in fields):
        return True
    prefix = str(settings_cls.model_config.get("env_prefix", "")).lower()
    return any(name.startswith(prefix) for name in source.env_vars)


class TlsSettings(Settings):
    """Certificates of a service; nothing set means plain text, as on one machine.

    The files may be replaced while the service runs. A certificate names its service by a URI
    `spiffe://<trust domain>/<service>`, and by the host names that others call it by.
    """

    model_config = SettingsConfigDict(env_prefix="BOS_TLS_")

    cert_file: Path | None = Field(
        default=None,
        description="Certificate (PEM, with its chain) that the service shows to callers, and to "
        "the services it calls",
    )
    key_file: Path | None = Field(default=None, description="Its private key (PEM)")
    ca_file: Path | None = Field(
        default=None, description="Authorities (PEM) that the certificates of services come from"
    )
    client_certificates: bool = Field(
        default=True,
        description="Demand a certificate of every caller; false where people, or programs outside "
        "of Bos, call the service itself",
    )
    trust_domain: str = Field(
        default="bos",
        pattern=r"^[a-z0-9._-]{1,255}$",
        description="Whose URIs in certificates name services",
    )
    refresh_s: float = Field(
        default=5.0, gt=0, description="Time between two looks at whether the files were replaced"
    )

    @property
    def configured(self) -> bool:
        """Whether the service speaks TLS."""
        return self.cert_file is not None

    @model_validator(mode="after")
    def _files_belong_together(self) -> Self:
        files = (self.cert_file, self.key_file, self.ca_file)
        if any(files) and not all(files):
            raise ValueError(
                "BOS_TLS_CERT_FILE, BOS_TLS_KEY_FILE and BOS_TLS_CA_FILE must be set together"
            )
        return self


class ServerSettings(Settings):
    """How a service offers itself. Durations are in seconds, sizes in bytes."""

    model_config = SettingsConfigDict(env_prefix="BOS_SERVER_")

    tls: TlsSettings = Field(default_factory=TlsSettings.load)
    host: str = Field(default="127.0.0.1", min_length=1, description="Address to bind")
    port: int = Field(default=0, ge=0, le=65535, description="Port to bind; 0 takes a free one")
    drain_delay_s: float = Field(
        default=0.0,
        ge=0,
        description="Wait between NOT_SERVING and refusing calls; covers load-balancer lag",
    )
    grace_s: float = Field(default=10.0, ge=0, description="Time for calls in flight at shutdown")
    max_message_bytes: int = Field(
        default=8 * 1024 * 1024, ge=1024, description="Largest message received or sent"
    )
    max_connection_age_s: float = Field(
        default=300.0, gt=0, description="Connections end after this, so that load spreads anew"
    )
    default_deadline_s: float = Field(
        default=60.0, gt=0, description="Deadline of a call whose client set none"
    )
    max_deadline_s: float = Field(
        default=3600.0,
        gt=0,
        description="Maximum call deadline; longer client deadlines are capped",
    )
    slow_call_s: float = Field(default=5.0, gt=0, description="Unary calls above are warned about")
    max_concurrent_rpcs: int = Field(
        default=10_000,
        ge=1,
        description="Calls of all callers at once, as a last resort; more are RESOURCE_EXHAUSTED",
    )
    max_calls_per_caller: int = Field(
        default=1000,
        ge=1,
        description="Calls of one user at once, over all connections and with the calls made for "
        "the user's runs; with authentication off, of one connection. A static key is "
        "one user",
    )
    max_request_bytes_per_caller: int = Field(
        default=32 * 1024 * 1024,
        ge=1024,
        description="Bytes of requests of one user under way at once; unpacked they take up to 25 "
        "times as much memory",
    )
    max_calls_per_open_method: int = Field(
        default=256,
        ge=1,
        description="Maximum concurrent calls of each method without credential, such as log-in; "
        "above them the oldest one of the busiest connection is ended",
    )
    max_calls_per_connection: int = Field(
        default=2048,
        ge=1,
        description="Calls at once over one connection; more wait in their client. A proxy such as "
        "REST has all its callers on one: BOS_REST_MAX_REQUESTS and BOS_REST_MAX_STREAMS together",
    )
    max_connections: int = Field(
        default=10_000,
        ge=1,
        description="Connections at once, also those whose handshake has not ended; more are "
        "closed. Stay below the files that the process may open (`ulimit -n`)",
    )
    message_timeout_s: float = Field(
        default=10.0,
        gt=0,
        description="A caller is known and its message there within this time, and so long may a "
        "handshake take; also the longest pause in a stream of requests",
    )
    metrics_port: int | None = Field(
        default=None, ge=0, le=65535, description="Port of the Prometheus metrics; unset for none"
    )
    metrics_host: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="Bind address of the unauthenticated metrics endpoint",
    )
    health_port: int | None = Field(
        default=None, ge=0, le=65535, description="Port of health alone, without TLS; unset: none"
    )
    reflection: bool | None = Field(
        default=None,
        description="Offer gRPC server reflection without authentication; unset: on loopback only",
    )
    trust_trace_context: bool = Field(
        default=False,
        description="Go on with the traces of all callers, as if all were inside. Otherwise those "
        "of calls with a run token or through REST go on, and others are linked to",
    )


class TelemetrySettings(Settings):
    """Logs, traces and metrics of a process."""

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severe level that is written"
    )
    log_format: Literal["json", "console"] = Field(
        default="json", description="json for machines, console for people"
    )
    otlp_endpoint: str | None = Field(
        default=None, description="Where traces go (OTLP over gRPC), such as http://127.0.0.1:4317"
    )
    trace_sample_ratio: float = Field(
        default=1.0, ge=0, le=1, description="Share of new traces that is recorded"
    )


class AuthSettings(Settings):
    """Authentication of callers. Nothing set means: authentication is off, loopback only.

    Gateway and identity take no run tokens, so for them keys of these alone are as nothing set.
    """

    model_config = SettingsConfigDict(env_prefix="BOS_AUTH_")

    static_key: SecretStr | None = Field(
        default=None, min_length=16, description="Key that callers send as a bearer token"
    )
    static_keys_file: Path | None = Field(
        default=None,
        description="File of further such keys, one a line, of at least 16 characters each. It may "
        "be replaced while the service runs: keys that it no longer holds are refused",
    )
    files_refresh_s: float = Field(
        default=5.0, gt=0, description="Time between two looks at whether a file of keys changed"
    )
    static_key_user: str = Field(
        default="local", min_length=1, max_length=128, description="User that its holder acts as"
    )
    static_key_roles: tuple[Role, ...] = Field(
        default=(USER,),
        description="Roles of its holder: user asks questions, approver answers approval requests "
        "of others, operator looks after runs, administrator after accounts",
    )
    static_key_groups: tuple[GroupName, ...] = Field(
        default=(), max_length=MAX_NAMES, description="Groups of its holder (BOS_ACCESS_GROUPS)"
    )
    run_token_public_keys: str | None = Field(
        default=None, description="Ed25519 public keys (PEM, one after another) of run tokens"
    )
    run_token_public_keys_file: Path | None = Field(
        default=None,
        description="File of further such keys, which may be replaced while the service runs: what "
        "was signed with a key that it no longer holds is refused",
    )
    run_token_check_target: str | None = Field(
        default=None,
        min_length=1,
        description="Where the gateway listens, to ask it whether the step of a run token is still "
        "under way; unset: run tokens of steps are good until they expire",
    )
    run_token_check_required: bool = Field(
        default=True,
        description="Refuse run tokens of steps while the gateway does not answer that",
    )
    issuer: str | None = Field(
        default=None,
        description="Issuer of the access tokens of people: what `BOS_IDENTITY_ISSUER` says, or "
        "the URL of an OpenID issuer in place of identity",
    )
    audience: str = Field(default="bos", min_length=1, description="What access tokens are for")
    user_claim: str = Field(
        default="sub", min_length=1, description="Claim of access tokens that holds the user's id"
    )
    roles_claim: str = Field(
        default="roles",
        min_length=1,
        description="Claim that holds the user's roles, a list; names that are no roles are left",
    )
    default_roles: tuple[Role, ...] = Field(
        default=(USER,), description="Roles of users whose access tokens lack that claim"
    )
    groups_claim: str = Field(
        default="groups",
        min_length=1,
        description="Claim that holds the user's groups (BOS_ACCESS_GROUPS), a list",
    )
    leeway_s: float = Field(
        default=5.0, ge=0, le=300, description="By how much the issuer's clock may differ"
    )
    require_token_type: bool = Field(
        default=False,
        description="Accept only access tokens whose header says `typ` `at+jwt` (RFC 9068). Always "
        "so with the keys of identity; of other issuers' tokens without it those that look like ID "
        "tokens are refused",
    )
    identity_target: str | None = Field(
        default=None, description="Where identity listens, to get its keys over gRPC"
    )
    jwks_url: str | None = Field(
        default=None, description="Where the keys are, if the issuer itself does not say"
    )
    jwks_file: Path | None = Field(default=None, description="File that holds the keys")
    jwks_networks: tuple[IPv4Network | IPv6Network, ...] = Field(
        default=(), description="Networks of the issuer's addresses, if they are not public ones"
    )
    jwks_max_age_s: float = Field(
        default=300.0, gt=0, description="Keys older than this are fetched anew"
    )
    proxy_public_keys: str | None = Field(
        default=None,
        description="Ed25519 public keys (PEM, one after another) of the REST gateways in front. "
        "What is signed with their `BOS_REST_SIGNING_KEY_FILE` is believed about the client's "
        "address and the trace",
    )
    proxy_public_keys_file: Path | None = Field(
        default=None,
        description="File of further such keys, which may be replaced while the service runs",
    )

    @property
    def configured(self) -> bool:
        """Whether any way to authenticate callers is set."""
        static = (self.static_key, self.static_keys_file)
        signed = (self.run_token_public_keys, self.run_token_public_keys_file)
        return self.names_issuer or any(each is not None for each in (*static, *signed))

    @property
    def names_issuer(self) -> bool:
        """Whether access tokens of people are accepted."""
        return any((self.issuer, self.identity_target, self.jwks_url, self.jwks_file))

    @property
    def keys_of_identity(self) -> bool:
        """Whether the keys that verify access tokens come from identity itself."""
        elsewhere = self.jwks_file is not None or self.jwks_url is not None
        return self.identity_target is not None and not elsewhere


def is_loopback(host: str) -> bool:
    """Whether ``host`` is reachable from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def require_loopback(host: str, configured: bool) -> None:
    """Refuse to open a service to the network while authentication is off.

    Raises:
        ConfigurationError: ``host`` is not a loopback address and authentication is not configured.
    """
    if configured or is_loopback(host):
        return
    raise ConfigurationError(
        f"Binding {host} would offer the service to the network without authentication. "
        "Set BOS_AUTH_ISSUER, BOS_AUTH_STATIC_KEY or BOS_AUTH_RUN_TOKEN_PUBLIC_KEYS, "
        "or bind a loopback address (BOS_SERVER_HOST=127.0.0.1)."
    )


def _explain(cls: type[BaseModel], problem: ErrorDetails) -> str:
    names = list(dict.fromkeys(_variables(cls, problem["loc"])))
    purpose = _description(cls, problem["loc"])
    what = "must be set" if problem["type"] == "missing" else problem["msg"]
    return f"{' or '.join(names) or cls.__name__}: {what}" + (f" ({purpose})" if purpose else "")


def _variables(cls: type[BaseModel], loc: Sequence[int | str]) -> Iterator[str]:
    """Every variable that could have set the value at ``loc``, the most specific one first."""
    path = [str(part) for part in loc]
    if not path:
        return
    prefix = str(cls.model_config.get("env_prefix", "")) if issubclass(cls, BaseSettings) else ""
    name, field = _field_at(cls, path[0])
    alias = None if field is None else field.validation_alias
    if field is not None and alias is not None:
        choices = getattr(alias, "choices", [alias])
        yield from (str(choice).upper() for choice in choices if isinstance(choice, str))
    else:
        # Parts below a plain model are addressed by the nested delimiter, list items by none.
        inner = [part for part in path[1:] if not part.isdigit()]
        yield (prefix + _NESTED.join([name, *inner])).upper()
    nested = None if field is None else field.annotation
    if isinstance(nested, type) and issubclass(nested, Settings):
        yield from _variables(nested, path[1:])


def _description(cls: type[BaseModel], loc: Sequence[int | str]) -> str | None:
    if not loc:
        return None
    _, field = _field_at(cls, str(loc[0]))
    if field is None:
        return None
    nested = field.annotation
    if len(loc) > 1 and isinstance(nested, type) and issubclass(nested, BaseModel):
        return _description(nested, loc[1:])
    return " ".join(field.description.split()) if field.description else None


def _field_at(cls: type[BaseModel], name: str) -> tuple[str, Any]:
    """The field named or aliased ``name``; errors are located by alias where there is one."""
    for field_name, field in cls.model_fields.items():
        choices = getattr(field.validation_alias, "choices", [field.validation_alias])
        if name == field_name or any(name == c or name.upper() == c for c in choices):
            return field_name, field
    return name, None


def _structured_variables(cls: type[BaseModel]) -> Iterator[str]:
    for name, field in cls.model_fields.items():
        if field.annotation not in (str, int, float, bool):
            yield from _variables(cls, (name,))
