"""Settings of the A2A agent: remote agents by name, each of them a specialist."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, field_validator
from pydantic_settings import SettingsConfigDict

from bos_agentkit import AgentServiceSettings
from bos_agentkit.serving.several import checked_names, the_chosen, with_file
from bos_http import HttpPolicy
from bos_http.endpoints import Endpoint

Keyword = Annotated[str, Field(min_length=2, max_length=64)]


class A2aServer(Endpoint):
    """One remote agent: address of its card, credentials and limits, whether it only reads.

    ``token`` and ``headers`` are sent to the origin of ``url`` and to no other.
    """

    url: str = Field(
        min_length=1,
        description="Address below which the card is at .well-known/agent-card.json, or of the "
        "card itself, where it ends with .json",
    )
    reads: bool = Field(
        default=False,
        description="The agent changes nothing, so that messages to it need no approval",
    )
    description: str = Field(
        default="", max_length=500, description="What the specialist is for, for the planner"
    )
    keywords: tuple[Keyword, ...] = Field(
        default=(), max_length=50, description="Parts of questions that count for the specialist"
    )
    call_timeout_s: float = Field(
        default=180.0, gt=0, le=3_600, description="Time of one task, until it rests"
    )
    connect_timeout_s: float = Field(
        default=30.0, gt=0, le=600, description="Time to fetch the card"
    )
    max_message_bytes: int = Field(
        default=8 * 1024 * 1024,
        ge=64 * 1024,
        le=64 * 1024 * 1024,
        description="Largest answer of the agent, and all that one stream of it holds",
    )
    max_result_chars: int = Field(
        default=100_000, ge=1_000, le=1_000_000, description="Longest text kept of one result"
    )
    max_rows: int = Field(default=1_000, ge=1, le=50_000, description="Rows kept of one result")


_SERVERS: TypeAdapter[dict[str, A2aServer]] = TypeAdapter(dict[str, A2aServer])


class A2aSettings(AgentServiceSettings):
    """``BOS_A2A_…``: one process serves one remote agent; the standalone serves all of them."""

    model_config = SettingsConfigDict(env_prefix="BOS_A2A_")

    servers: dict[str, A2aServer] = Field(
        default={},
        max_length=50,
        description="Remote agents (A2A servers) by the name of the specialist, as JSON: url (with "
        "token, token_file, headers, networks); reads, description, keywords, and limits",
    )
    servers_file: Path | None = Field(
        default=None, description="File with more of them, as JSON of the same form; read at start"
    )
    agent: str = Field(
        default="",
        description="Which of the servers this process serves; may be unset where there is one",
    )
    refresh_s: float = Field(
        default=60.0, ge=1, le=3_600, description="Time between looks at a remote agent's card"
    )
    max_backoff_s: float = Field(
        default=30.0, ge=0.1, le=3_600, description="Longest wait before another look at the card"
    )
    http: HttpPolicy = Field(default_factory=HttpPolicy.load)

    @field_validator("servers")
    @classmethod
    def _are_names(cls, servers: dict[str, A2aServer]) -> dict[str, A2aServer]:
        return checked_names(servers)

    @classmethod
    def agents(cls) -> Mapping[str, Mapping[str, Any]]:
        """One agent for each configured server."""
        return {name: {"agent": name} for name in cls.load().all_servers()}

    def all_servers(self) -> Mapping[str, A2aServer]:
        """Servers of the variable and of the file.

        Raises:
            ConfigurationError: the file cannot be read, or an entry of it is wrong; names the field
                and no value.
        """
        return with_file(self.servers, self.servers_file, _SERVERS, "BOS_A2A_SERVERS")

    def chosen(self) -> tuple[str, A2aServer]:
        """Name and settings of the server that is served.

        Raises:
            ConfigurationError: none is configured, or several are and none is named.
        """
        return the_chosen(
            self.all_servers(),
            self.agent,
            variable="BOS_A2A_AGENT",
            none="No remote agent is configured. Set BOS_A2A_SERVERS or BOS_A2A_SERVERS_FILE, such "
            'as {"billing": {"url": "https://agents.example.com/billing"}}.',
        )
