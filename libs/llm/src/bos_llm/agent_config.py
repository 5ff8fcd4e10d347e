"""The model of one agent and the way to reach it, as settings say, and what a question chose.

A model that a question chose is given to the current task, like its deadline, so that no agent has
to hand it on and none can call another by mistake::

    set_model_choice("gpt-6-sol")
    await model.text(messages)  # by it, unless settings name a model for this very agent

The gateway has checked that it may be chosen; only it can call planner, composer and agents.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, TypeAdapter

_OURS = frozenset({"model", "messages", "stream", "stream_options", "response_format", "n"})
MAX_REPLY_TOKENS = 131_072
"""More than any model writes at once."""

_choice: ContextVar[str] = ContextVar("bos_model_choice", default="")


def set_model_choice(name: str) -> None:
    """Have model calls of the current task (and of what it starts) go to the model ``name``.

    An empty name leaves it to the settings. They also win for an agent whose own ``<AGENT>_MODEL``
    or ``<AGENT>_MODEL_PROVIDER`` is set.
    """
    _choice.set(name)


def current_model_choice() -> str:
    """The model that the current task's question chose; empty if none."""
    return _choice.get()


Temperature = Annotated[
    float | None,
    Field(ge=0, le=2),
    BeforeValidator(lambda value: None if value == "none" else value),
]
"""``none`` leaves it to the model; some models accept no other value."""

Effort = Annotated[str, Field(pattern=r"^[a-z]{1,16}$")]
Tier = Literal["standard", "small"]
ReplyTokens = Annotated[int, Field(ge=64, le=MAX_REPLY_TOKENS)]


def _checked_body(value: Mapping[str, Any]) -> Mapping[str, Any]:
    if taken := sorted(_OURS & value.keys()):
        raise ValueError(f"must not hold {', '.join(taken)}, which every call sets itself")
    return value


ExtraBody = Annotated[Mapping[str, Any], Field(max_length=32), AfterValidator(_checked_body)]

TEMPERATURE_TYPE: TypeAdapter[float | None] = TypeAdapter(Temperature)
EFFORT_TYPE: TypeAdapter[str] = TypeAdapter(Effort)
TIER_TYPE: TypeAdapter[Tier] = TypeAdapter(Tier)
REPLY_TOKENS_TYPE: TypeAdapter[int] = TypeAdapter(ReplyTokens)
EXTRA_BODY_TYPE: TypeAdapter[Mapping[str, Any]] = TypeAdapter(ExtraBody)


@dataclass(frozen=True, slots=True)
class AgentModelConfig:
    """The model of one agent."""

    provider: str
    model: str
    temperature: float | None
    """None: not sent, so that the model's own default holds."""
    keys: str = ""
    """The profile whose keys are used; empty for the provider's own variable."""
    tier: Tier = "standard"
    """``small``: simpler calls, one thing at a time."""
    reasoning_effort: str | None = None
    """How long a model that thinks may do so; None: not sent."""
    max_reply_tokens: int = 4096
    """Longest reply, without what a model thinks."""
    extra_body: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Sent along with every call, as it is."""


@dataclass(frozen=True, slots=True)
class Access:
    """Address and credentials of a provider."""

    provider: str
    kind: Literal["openai", "azure", "compatible"]
    base_url: str | None
    """None: where the ``openai`` package goes by default."""
    keys: tuple[SecretStr, ...]
    """In the order in which they are used, as they are now; a lone endpoint may need none."""
    url_variable: str
    key_variable: str
    api_version: str = ""
    """Of Azure OpenAI; empty for its v1 endpoint."""
    profile: str = ""
    """Where the keys are from; empty for the provider's own variable."""
    managed_identity: bool = False
    """Tokens of this machine's identity take the place of a key."""
    key_file: Path | None = None
    """Where the keys are from, if they may change under way."""
    client_id: str | None = None
    """Which of several identities."""
