"""Settings of the MCP agent: MCP servers by name, each of them a specialist."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, SecretStr, TypeAdapter, field_validator, model_validator
from pydantic_settings import SettingsConfigDict

from bos_agentkit import AgentServiceSettings
from bos_agentkit.serving.several import checked_names, the_chosen, with_file
from bos_http import HttpPolicy
from bos_http.endpoints import Endpoint

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
Word = Annotated[str, Field(min_length=1, max_length=128)]
Keyword = Annotated[str, Field(min_length=2, max_length=64)]


class McpServer(Endpoint):
    """One MCP server: its address or program, credentials, limits, and which tools are offered.

    ``token`` and ``headers`` are sent to the origin of ``url`` and to no other.
    """

    url: str = Field(default="", description="Streamable HTTP endpoint, such as https://x.com/mcp")
    command: tuple[str, ...] = Field(
        default=(), max_length=64, description="Or a program to start, with its arguments (stdio)"
    )
    env: dict[str, SecretStr] = Field(
        default={}, max_length=100, description="All environment variables of the program"
    )
    cwd: Path = Field(default=Path("/"), description="Working folder of the program")
    allow: tuple[Word, ...] = Field(
        default=(), description="Names of the tools that are offered; empty: all"
    )
    deny: tuple[Word, ...] = Field(default=(), description="Names of tools that are not offered")
    trust_annotations: bool = Field(
        default=True,
        description="Believe the server which of its tools only read; false: every tool needs "
        "approval but those of `reads`",
    )
    reads: tuple[Word, ...] = Field(
        default=(), description="Names of tools that only read, so that they need no approval"
    )
    writes: tuple[Word, ...] = Field(
        default=(), description="Names of tools that always need approval"
    )
    description: str = Field(
        default="", max_length=500, description="What the specialist is for, for the planner"
    )
    keywords: tuple[Keyword, ...] = Field(
        default=(), max_length=50, description="Parts of questions that count for the specialist"
    )
    call_timeout_s: float = Field(default=60.0, gt=0, le=3_600, description="Time of one call")
    connect_timeout_s: float = Field(
        default=30.0, gt=0, le=600, description="Time to start, connect and list the tools"
    )
    max_calls: int = Field(default=5, ge=1, le=50, description="Calls of one step")
    max_tools: int = Field(default=64, ge=1, le=256, description="Tools that are offered at most")
    max_message_bytes: int = Field(
        default=8 * 1024 * 1024,
        ge=64 * 1024,
        le=64 * 1024 * 1024,
        description="Longest message of the server",
    )
    max_result_chars: int = Field(
        default=100_000, ge=1_000, le=1_000_000, description="Longest text kept of one result"
    )
    max_rows: int = Field(default=1_000, ge=1, le=50_000, description="Rows kept of one result")

    @field_validator("env")
    @classmethod
    def _are_variables(cls, env: dict[str, SecretStr]) -> dict[str, SecretStr]:
        if wrong := [name for name in env if not _VARIABLE.fullmatch(name)]:
            raise ValueError(f"{len(wrong)} names are no environment variables")
        if any("\0" in value.get_secret_value() for value in env.values()):
            raise ValueError("a value holds a NUL character")
        return env

    @model_validator(mode="after")
    def _one_transport(self) -> Self:
        if bool(self.url) == bool(self.command):
            raise ValueError("give either url or command")
        if self.command and (self.token or self.token_file or self.headers or self.networks):
            raise ValueError("token, token_file, headers and networks belong to a url")
        if self.url and self.env:
            raise ValueError("env belongs to a command")
        if both := set(self.reads) & set(self.writes):
            raise ValueError(f"{', '.join(sorted(both))}: either in reads or in writes")
        return self

    def offers(self, tool: str) -> bool:
        """Whether the operator lets plans use a tool."""
        return tool not in self.deny and (not self.allow or tool in self.allow)

    @property
    def where(self) -> str:
        """Name of the endpoint or program for people, without arguments or credentials."""
        if self.url:
            return super().where
        return Path(self.command[0]).name


_SERVERS: TypeAdapter[dict[str, McpServer]] = TypeAdapter(dict[str, McpServer])


class McpSettings(AgentServiceSettings):
    """``BOS_MCP_…``: one process serves one server; the standalone serves all of them."""

    model_config = SettingsConfigDict(env_prefix="BOS_MCP_")

    servers: dict[str, McpServer] = Field(
        default={},
        max_length=50,
        description="MCP servers by the name of the specialist, as JSON: url (with token, "
        "token_file, headers, networks) or command (with env, cwd); allow, deny, reads, writes, "
        "trust_annotations, description, keywords, and limits",
    )
    servers_file: Path | None = Field(
        default=None, description="File with more of them, as JSON of the same form; read at start"
    )
    agent: str = Field(
        default="",
        description="Which of the servers this process serves; may be unset where there is one",
    )
    refresh_s: float = Field(
        default=60.0,
        ge=1,
        le=3_600,
        description="Time between looks at a server's tools; changes that a program announces are "
        "noticed at once",
    )
    max_backoff_s: float = Field(
        default=30.0, ge=0.1, le=3_600, description="Longest wait before another connection"
    )
    summary_timeout_s: float = Field(
        default=15.0, gt=0, description="Then a result is stated without a model's words"
    )
    http: HttpPolicy = Field(default_factory=HttpPolicy.load)

    @field_validator("servers")
    @classmethod
    def _are_names(cls, servers: dict[str, McpServer]) -> dict[str, McpServer]:
        return checked_names(servers)

    @classmethod
    def agents(cls) -> Mapping[str, Mapping[str, Any]]:
        """One agent for each configured server."""
        return {name: {"agent": name} for name in cls.load().all_servers()}

    def all_servers(self) -> Mapping[str, McpServer]:
        """Servers of the variable and of the file.

        Raises:
            ConfigurationError: the file cannot be read, or an entry of it is wrong; names the field
                and no value.
        """
        return with_file(self.servers, self.servers_file, _SERVERS, "BOS_MCP_SERVERS")

    def chosen(self) -> tuple[str, McpServer]:
        """Name and settings of the server that is served.

        Raises:
            ConfigurationError: none is configured, or several are and none is named.
        """
        return the_chosen(
            self.all_servers(),
            self.agent,
            variable="BOS_MCP_AGENT",
            none="No MCP server is configured. Set BOS_MCP_SERVERS or BOS_MCP_SERVERS_FILE, such "
            'as {"notes": {"url": "https://example.com/mcp"}}.',
        )
