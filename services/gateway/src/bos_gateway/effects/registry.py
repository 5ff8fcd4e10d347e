"""Agent registry: targets from settings, cards from the agents."""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc

from bos.agent.v1 import AgentCard, AgentServiceStub, DescribeRequest
from bos.gateway.v1 import AgentInfo
from bos_chassis.concurrency.periodic_tasks import periodic_tasks
from bos_errors import Unavailable, from_rpc_error
from bos_gateway.core.result_limits import values_problem
from bos_gateway.permits.agents import offered_card
from bos_plans import is_duration, shared_names

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

    from bos.agent.v1 import AgentServiceAsyncStub
    from bos_chassis.auth.access import Access
    from bos_chassis.channels import Channels
    from bos_chassis.telemetry import Telemetry
    from bos_gateway.effects.run_tokens import Tokens

_TIMEOUT_S = 3.0
_MISSING_S = 2.0
_MAX_CARD_BYTES = 256 * 1024
_TOOL_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_NEVER_ANSWERED = "The agent has not answered yet."


@dataclass(slots=True)
class _Agent:
    stub: AgentServiceAsyncStub
    card: AgentCard | None = None
    unavailable_reason: str = _NEVER_ANSWERED
    remembered: AgentCard | None = None
    """What it answered other replicas, or this one before it was started anew."""


class Registry:
    """Knows every configured agent by its card. A card once seen is kept while its agent is away.

    Args:
        targets: gRPC targets by the name that deployment config gives each agent.
        channels: Long-lived channels; shared with the rest of the process.
        tokens: Who the gateway is to the agents.
        telemetry: For the log.
    """

    def __init__(
        self, targets: Mapping[str, str], channels: Channels, tokens: Tokens, telemetry: Telemetry
    ) -> None:
        self._tokens = tokens
        self._agents: dict[str, _Agent] = {}
        for name, target in sorted(targets.items()):
            self._agents[name] = _Agent(AgentServiceStub(channels.get(target)))
        self._shared: dict[str, list[str]] = {}
        self._log = telemetry.logger("bos.gateway.registry")

    @property
    def names(self) -> Sequence[str]:
        """Names of all configured agents."""
        return list(self._agents)

    @property
    def cards(self) -> Sequence[AgentCard]:
        """Cards of all agents that ever answered."""
        return [agent.card for agent in self._agents.values() if agent.card is not None]

    @property
    def declaring(self) -> Sequence[AgentCard]:
        """The latest card of every agent, also of one that is away: by them credentials are known.

        A replica that has just been started takes the same for credentials as all others do, also
        while an agent is away.
        """
        latest = (agent.card or agent.remembered for agent in self._agents.values())
        return [card for card in latest if card is not None]

    def remember(self, cards: Iterable[AgentCard]) -> None:
        """Take cards of an earlier time for those of agents that have not answered yet."""
        for card in cards:
            if card.name in self._agents:
                self._agents[card.name].remembered = card

    def require_cards(self) -> Sequence[AgentCard]:
        """Cards of all agents that ever answered, by name, for a question to be planned now.

        Raises:
            Unavailable: agents are configured and none of them has ever answered. A plan made
                without any would look like a question that needs none.
        """
        cards = self.cards
        if self._agents and not cards:
            text = "None of the agents answers at the moment; try again shortly."
            raise Unavailable(text, reason="NO_AGENTS", retry_after_s=_MISSING_S)
        return cards

    @property
    def unavailable(self) -> Mapping[str, str]:
        """Agents that do not answer at the moment, with a reason that is safe to show."""
        return {n: a.unavailable_reason for n, a in self._agents.items() if a.unavailable_reason}

    def agents(self, access: Access) -> list[AgentInfo]:
        """Agents that a client may use, with what it may know of them, by name."""
        return [
            AgentInfo(
                card=card,
                available=not agent.unavailable_reason,
                unavailable_reason=agent.unavailable_reason,
            )
            for name, agent in self._agents.items()
            if (card := offered_card(agent.card or AgentCard(name=name), access)) is not None
        ]

    def stub(self, agent: str) -> AgentServiceAsyncStub | None:
        """The gRPC stub of ``agent``; None if no such agent is configured."""
        known = self._agents.get(agent)
        return known.stub if known else None

    async def refresh(self) -> None:
        """Ask every agent for its card, all at once."""
        await asyncio.gather(*(self._describe(*each) for each in self._agents.items()))
        self._report_shared_names()

    def _report_shared_names(self) -> None:
        """Log each name that several cards claim, once."""
        shared = shared_names(self.cards)
        for name, agents in shared.items():
            if self._shared.get(name) != agents:
                self._log.error("agents share a name", shared_name=name, agents=agents)
        self._shared = shared

    async def _describe(self, name: str, agent: _Agent) -> None:
        token = self._tokens.own(name, _TIMEOUT_S)
        try:
            answer = await agent.stub.Describe(
                DescribeRequest(), timeout=_TIMEOUT_S, metadata=token
            )
        except grpc.RpcError as error:
            failure = from_rpc_error(error)
            if agent.unavailable_reason in ("", _NEVER_ANSWERED):
                self._log.warning("agent unavailable", agent=name, reason=failure.reason)
            agent.unavailable_reason = failure.message
            return
        answer.DiscardUnknownFields()
        if problem := _card_problem(answer.card, name):
            agent.unavailable_reason = problem
            self._log.error("agent card invalid", agent=name, why=problem)
            return
        if agent.unavailable_reason:
            self._log.info("agent available", agent=name, version=answer.card.version)
        agent.card = answer.card
        agent.unavailable_reason = ""


def _card_problem(card: AgentCard, name: str) -> str | None:
    """Why the card of the agent that is configured as ``name`` cannot be used; None if it can.

    It is stored with every run, and names of its tools with approval requests.
    """
    if card.name != name:
        return f'The agent calls itself "{card.name[:64]}".'
    if card.ByteSize() > _MAX_CARD_BYTES:
        return f"The card of the agent is larger than {_MAX_CARD_BYTES // 1024} KiB."
    if not all(_TOOL_NAME.fullmatch(tool.name) for tool in card.tools):
        return "The card of the agent has a tool with an invalid name."
    if not all(map(is_duration, (card.default_timeout, card.latency_budget))):
        return "The card of the agent has an invalid duration."
    schemas = (value for tool in card.tools for value in tool.input_schema.fields.values())
    problem = values_problem(schemas)
    return f"The card of the agent {problem}." if problem else None


@asynccontextmanager
async def watched_registry(
    registry: Registry, interval_s: float, telemetry: Telemetry
) -> AsyncIterator[Registry]:
    """Keep ``registry`` fresh while the block runs; the first look is taken before it starts."""

    async def watch() -> None:
        # Agents that start after the gateway should not be missed for long.
        await asyncio.sleep(min(interval_s, _MISSING_S) if registry.unavailable else interval_s)
        await registry.refresh()

    await registry.refresh()
    log = telemetry.logger("bos.gateway.registry")
    async with periodic_tasks(log, {"agents": watch}, retry_s=interval_s):
        yield registry
