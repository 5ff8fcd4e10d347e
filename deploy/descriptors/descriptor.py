"""Descriptor of a service: ``[tool.bos]`` in its pyproject.toml; in bos.toml if it is not Python.

Only what differs from the defaults is written down. Made from descriptors: the containers of
docker-compose.yml, the rows of the chart, Prometheus targets, keys, the names of known agents, the
grants of agents in standalone, the page of services.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Compose(_Table):
    """What its container has beyond that of other services."""

    after: dict[str, bool] = {}
    """Containers that have to be healthy first; false: only if they run at all."""
    environment: dict[str, str] = {}
    healthcheck: dict[str, Any] = {}
    """Keys of its health check that differ."""
    memory: str = ""
    """Memory limit, such as 2g."""
    networks: list[str] = []
    """Networks beyond those that follow from its calls."""
    ports: list[str] = []
    volumes: list[str] = []
    volume: str = ""
    """Volume of its files; the name of the service if unset."""
    folder: str = "files"
    """Folder of its files on that volume."""


class Descriptor(_Table):
    """What one service needs where it runs."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]{0,62}$")
    """Name of its folder."""
    folder: str
    """Folder of the service, relative to the repository."""
    description: str
    """One line; ``project.description``."""
    kind: Literal["service", "agent", "rest"] = "service"
    protocol: Literal["grpc", "http"] = "grpc"
    path: str = ""
    """Path of its URL, for services over HTTP."""
    callers: list[Literal["users", "gateway", "steps"]] = []
    """Whose credentials it accepts: of users, run tokens of the gateway, run tokens of steps."""
    calls: dict[str, str] = {}
    """Services that it requires, each with the setting that takes the address."""
    may_call: dict[str, str] = {}
    """Services that it calls where they run, likewise."""
    calls_agents: str = ""
    """Setting that takes the addresses of all agents."""
    calls_account_data: str = ""
    """Setting that takes the addresses of services with ``account_data``."""
    account_data: bool = False
    """Whether it holds data of accounts, which is exported and erased with them."""
    hands_on: dict[str, str] = {}
    """Further audiences of an agent's run tokens, each with the service that accepts it."""
    connections: list[str] = []
    """Kinds of users' connections whose secrets an agent's steps receive."""
    aliases: list[str] = []
    """Other names of an agent, as on its card; NAME_agent need not be listed."""
    egress: list[str] = []
    """Places outside of the deployment: keys of ``network.outside`` in the chart's values."""
    models: bool = False
    """Whether it calls models; agents do."""
    store: bool = False
    """Whether it has tables: schema NAME, role bos_NAME, setting BOS_NAME_STORE_URL."""
    blobs: str = ""
    """Setting that takes the URL of its files."""
    index: str = ""
    """Setting that takes the folder of its vector index where there is no Qdrant."""
    isolated: bool = False
    """Whether it may call no other service."""
    on_request: bool = False
    """Whether it runs only where an operator configures it."""
    holds: str = ""
    """What it stores or guards, for the page of services."""
    compose: Compose = Compose()
    chart: dict[str, Any] = {}
    """Fields of its row in the chart's values that differ from the defaults there."""

    @model_validator(mode="before")
    @classmethod
    def _agents(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Defaults of agents."""
        if given.get("kind") == "agent":
            return {"callers": ["steps"], "models": True, **given}
        return given

    @property
    def host(self) -> str:
        """Name of its container, image and host."""
        return self.name.replace("_", "-")

    @property
    def is_agent(self) -> bool:
        """Whether it implements the contract of agents."""
        return self.kind == "agent"

    @property
    def is_audience(self) -> bool:
        """Whether run tokens of agents that call it name it."""
        return self.kind == "service" and "steps" in self.callers

    @property
    def takes_run_tokens(self) -> bool:
        """Whether it verifies run tokens."""
        return "gateway" in self.callers or "steps" in self.callers

    @property
    def all_calls(self) -> Mapping[str, str]:
        """Services that it calls, each with the setting, required or not."""
        return {**self.calls, **self.may_call}

    @property
    def store_setting(self) -> str:
        """Setting that takes the URL of its tables."""
        return f"BOS_{self.name.upper()}_STORE_URL"


class Services:
    """All described services of a repository, services before agents, each in alphabetical order.

    Raises:
        SystemExit: a descriptor is wrong; names the file, the field and the problem.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        files = [
            *(root / "services").glob("*/pyproject.toml"),
            *(root / "services").glob("*/bos.toml"),
            *(root / "services/agents").glob("*/pyproject.toml"),
        ]
        found = [each for file in files if (each := _read(root, file)) is not None]
        self.all = sorted(found, key=lambda each: (each.is_agent, each.name))
        self._named = {each.name: each for each in self.all}
        self._check()

    def __getitem__(self, name: str) -> Descriptor:
        return self._named[name]

    @property
    def agents(self) -> list[Descriptor]:
        """Services that implement the contract of agents."""
        return [each for each in self.all if each.is_agent]

    @property
    def stores(self) -> list[Descriptor]:
        """Services with tables."""
        return [each for each in self.all if each.store]

    @property
    def standing(self) -> list[Descriptor]:
        """Services that run in every deployment."""
        return [each for each in self.all if not each.on_request]

    def audiences(self, agent: Descriptor) -> list[str]:
        """Services that run tokens of an agent's steps name."""
        called = [name for name in sorted(agent.all_calls) if self[name].is_audience]
        return [*called, *agent.hands_on]

    def _check(self) -> None:
        for each in self.all:
            named = {*each.all_calls, *each.hands_on.values()}
            for unknown in sorted(named - self._named.keys()):
                raise SystemExit(
                    f"{each.folder}: calls {unknown}, which no folder of services/ describes; "
                    "describe it in [tool.bos] of its pyproject.toml, or correct the name"
                )


def _read(root: Path, file: Path) -> Descriptor | None:
    """The descriptor in a file; None for a member that is no service."""
    read = tomllib.loads(file.read_text("utf-8"))
    table = read.get("tool", {}).get("bos")
    if table is None:
        return None
    folder = file.parent.relative_to(root).as_posix()
    given = {
        "name": file.parent.name,
        "folder": folder,
        "description": read["project"]["description"],
    }
    try:
        return Descriptor(**given, **table)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()
        )
        raise SystemExit(f"{folder}/{file.name}, [tool.bos]: {problems}") from None
