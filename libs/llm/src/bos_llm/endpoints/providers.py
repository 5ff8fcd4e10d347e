"""Providers of models as rows of a table: how each is recognised, and what it is known to take.

A row is where a call starts. What an endpoint refuses all the same is learnt from its answer
(``capabilities.py``), so a row that is out of date costs one request, not the question.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from typing import Any, Final, Literal
from urllib.parse import urlsplit

StructuredMode = Literal["json_schema", "json_object", "prompt"]
"""How a reply as JSON is asked for: by its schema, as any JSON object, or in words alone."""
LimitName = Literal["max_tokens", "max_completion_tokens", "none"]
"""The parameter that bounds the reply; ``none``: no bound is sent."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Capabilities of one model at one endpoint."""

    structured: StructuredMode = "json_schema"
    limit: LimitName = "max_tokens"
    window: int | None = None
    """Tokens of prompt and reply together, if the endpoint said so."""
    limit_cap: int | None = None
    """Largest bound that was accepted; None if none was refused."""
    temperature: bool = True
    temperature_refused: bool = False
    """Whether it was refused, rather than known not to be taken."""
    reasoning_effort: bool = True
    stream_usage: bool = True
    """``stream_options.include_usage``."""
    reasons: bool = False
    """Whether it thinks before it answers, which counts against the bound of the reply."""


@dataclass(frozen=True, slots=True)
class Provider:
    """One row."""

    name: str
    title: str
    """For people."""
    hosts: tuple[str, ...] = ()
    """Ends of host names by which an address is recognised."""
    host_begins: str = ""
    """What such a name begins with as well."""
    port: int | None = None
    """Port by which a server on this machine or network is recognised."""
    takes: Capabilities = field(default_factory=Capabilities)
    schema_in_prompt: bool = True
    """Whether prompts must hold the form of a reply: their endpoint hides or ignores it."""
    model_patterns: tuple[tuple[str, str], ...] = ()
    """Regular expressions of model names that differ, and the traits they have (``_TRAITS``)."""
    stream_whole: bool = False
    """Whether whole replies are read as streams, because the endpoint goes on with a call that was
    given up unless it streams."""

    def capabilities(self, model: str) -> Capabilities:
        """Known capabilities of ``model`` here."""
        found = self.takes
        name = model.rpartition("/")[2].lower()
        for pattern, trait in self.model_patterns:
            if re.match(pattern, name):
                found = replace(found, **_TRAITS[trait])
        return found


# A thinking model of OpenAI takes no temperature. From gpt-5.1 on it does with thinking off.
_TRAITS: Final[dict[str, dict[str, Any]]] = {
    "thinks": {"reasons": True, "temperature": False},
    "thinks_aloud": {"reasons": True},
    "plain": {"reasons": False, "reasoning_effort": False, "temperature": True},
}
_OPENAI_MODELS: Final = (
    (r"o\d|gpt-[5-9]", "thinks"),
    (r"gpt-(3|4)", "plain"),
    (r"gpt-[5-9](\.\d+)?-chat", "plain"),
)
_MAYBE_THINKING: Final = ((r".*(reasoner|-r1|thinking|magistral|qwen3|gpt-oss)", "thinks_aloud"),)

_ROWS: Final = (
    Provider(
        "openai",
        "OpenAI",
        hosts=("api.openai.com",),
        takes=Capabilities(limit="max_completion_tokens"),
        schema_in_prompt=False,
        model_patterns=_OPENAI_MODELS,
    ),
    Provider(
        "azure",
        "Azure OpenAI",
        hosts=(
            ".openai.azure.com",
            ".openai.azure.us",
            ".services.ai.azure.com",
            ".cognitiveservices.azure.com",
        ),
        takes=Capabilities(limit="max_completion_tokens"),
        schema_in_prompt=False,
        model_patterns=_OPENAI_MODELS,
    ),
    Provider("ollama", "Ollama", port=11434, model_patterns=_MAYBE_THINKING),
    Provider("vllm", "vLLM", model_patterns=_MAYBE_THINKING),
    Provider("llamacpp", "llama.cpp server", model_patterns=_MAYBE_THINKING),
    Provider("lmstudio", "LM Studio", port=1234, model_patterns=_MAYBE_THINKING),
    Provider(
        "litellm",
        "LiteLLM proxy",
        port=4000,
        model_patterns=((r"o\d|gpt-[5-9]", "thinks"), *_MAYBE_THINKING),
        stream_whole=True,
    ),
    Provider(
        "openrouter",
        "OpenRouter",
        hosts=("openrouter.ai",),
        model_patterns=((r"o\d|gpt-[5-9]", "thinks"), *_MAYBE_THINKING),
        stream_whole=True,
    ),
    Provider(
        "mistral",
        "Mistral",
        hosts=("api.mistral.ai",),
        takes=Capabilities(stream_usage=False, reasoning_effort=False),
        model_patterns=_MAYBE_THINKING,
    ),
    Provider(
        "groq",
        "Groq",
        hosts=("api.groq.com",),
        # Only some of its models take a schema; all take an object.
        takes=Capabilities(structured="json_object"),
        model_patterns=_MAYBE_THINKING,
    ),
    Provider(
        "deepseek",
        "DeepSeek",
        hosts=("api.deepseek.com",),
        takes=Capabilities(structured="json_object"),
        model_patterns=_MAYBE_THINKING,
    ),
    Provider(
        "anthropic",
        "Anthropic (compatible endpoint)",
        hosts=("api.anthropic.com",),
        # response_format is accepted and ignored.
        takes=Capabilities(structured="prompt", reasoning_effort=False),
    ),
    Provider(
        "gemini",
        "Google Gemini (compatible endpoint)",
        hosts=("generativelanguage.googleapis.com",),
        model_patterns=((r"gemini-(2\.5|[3-9])", "thinks_aloud"),),
    ),
    Provider(
        "bedrock",
        "Amazon Bedrock (compatible endpoint or access gateway)",
        hosts=(".amazonaws.com",),
        host_begins="bedrock",
        takes=Capabilities(structured="prompt", reasoning_effort=False),
    ),
)
_NEAR: Final = (".internal", ".local", ".lan", ".svc", ".home.arpa")
COMPATIBLE: Final = Provider(
    "compatible", "another compatible endpoint", model_patterns=_MAYBE_THINKING
)
PROVIDERS: Final = {row.name: row for row in (*_ROWS, COMPATIBLE)}


def provider_row(name: str) -> Provider:
    """The row of ``name``; an unknown one is a compatible endpoint of that name."""
    return PROVIDERS.get(name) or replace(COMPATIBLE, name=name)


def recognise(base_url: str) -> str:
    """The name of the provider at an address; ``compatible`` for an unknown one."""
    try:
        parts = urlsplit(base_url)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        return COMPATIBLE.name
    for row in _ROWS:
        named = any(host == end.lstrip(".") or host.endswith(_dotted(end)) for end in row.hosts)
        if named and host.startswith(row.host_begins):
            return row.name
    if not _is_near(host):
        return COMPATIBLE.name
    return next(
        (row.name for row in _ROWS if row.port is not None and row.port == port), "compatible"
    )


def _is_near(host: str) -> bool:
    """Whether a host is on this machine or network, by its name."""
    try:
        return ip_address(host).is_private
    except ValueError:
        return "." not in host or host.endswith(_NEAR)


def _dotted(end: str) -> str:
    return end if end.startswith(".") else f".{end}"
