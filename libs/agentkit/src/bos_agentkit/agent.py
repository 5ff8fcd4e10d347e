"""Base class of agents and their cards."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

from google.protobuf import duration_pb2

from bos.agent.v1 import AgentCard, AgentResult, OutputField, ProposedAction, TaskMetadata
from bos_agentkit.results import succeeded
from bos_agentkit.task import AgentTask, result_fields
from bos_agentkit.tools import AgentTool
from bos_errors import ConfigurationError


class Agent(ABC):
    """Base class of an agent; one instance is shared by concurrent steps.

    ``card`` describes it to the planner and the gateway. Tools are the ``@tool`` methods of the
    class, or what a subclass assigns to ``tools``; the card must list the same ones.
    """

    card: AgentCard
    tools: Sequence[AgentTool] | None = None
    """Tools that are plain functions and may be shared by agents; None: the class's own methods."""

    @abstractmethod
    async def execute(self, task: AgentTask) -> AgentResult:
        """Execute one step; failures are raised, never suppressed.

        The call is cancelled when the step's time is over or the caller has disconnected.

        Raises:
            AgentFailure: the task failed.
            ApprovalNeeded: raised by the toolbox; ends the step AWAITING_APPROVAL.
        """

    async def prepare(  # noqa: B027  most agents have nothing to read
        self, metadata: TaskMetadata, question: str
    ) -> None:
        """Prefetch what a step of the run is likely to need, while its plan is being made.

        Override it where a step begins with something slow that does not depend on the task, such
        as reading a schema; the served card then announces it. It must not change anything outside
        the agent, and no step may rely on it: it is skipped when there is no time or capacity,
        cancelled at its time limit, and no step waits for it. Its exceptions are only logged.

        Args:
            metadata: User and run; there is no step yet.
            question: The user's question; untrusted text.
        """

    def require_available(self) -> None:  # noqa: B027  most agents can always work
        """Refuse to be described while the agent cannot work; called with each ``Describe``.

        Override it where the agent depends on a system that may be away: the gateway lists the
        agent as unavailable with the reason, and notices by itself when it is back. Card and tools
        may be replaced while the agent is served; steps in progress keep those they began with.

        Raises:
            Unavailable: says why, in words that are safe to show.
        """

    async def perform(self, task: AgentTask, actions: Sequence[ProposedAction]) -> AgentResult:
        """Perform the approved actions, exactly these and in this order.

        Override it to write the answer or to continue after the actions; perform each with
        ``task.tools.perform``.
        """
        results = {}
        for action in actions:
            results[action.action_id] = result_fields(await task.tools.perform(action))
        # One action is the usual case; references can then name its fields directly.
        data = next(iter(results.values())) if len(results) == 1 else results
        return succeeded(task, answer="Done: " + "; ".join(a.summary for a in actions), data=data)

    def all_tools(self) -> tuple[AgentTool, ...]:
        """Tools of the agent, methods bound to this object."""
        if self.tools is not None:
            return tuple(self.tools)
        names = {
            name: None
            for cls in reversed(type(self).__mro__)
            for name, member in vars(cls).items()
            if isinstance(member, AgentTool)
        }
        members = (getattr(self, name) for name in names)
        return tuple(member for member in members if isinstance(member, AgentTool))


def agent_card(
    name: str,
    description: str,
    *,
    capabilities: Sequence[str] = (),
    typical_use_cases: Sequence[str] = (),
    keywords: Sequence[str] = (),
    selection_group: int = 0,
    tools: Iterable[AgentTool] = (),
    output_fields: Mapping[str, str] | None = None,
    required_context_keys: Sequence[str] = (),
    secret_context_keys: Sequence[str] = (),
    connection_kinds: Sequence[str] = (),
    default_timeout_s: float = 30.0,
    max_retries: int = 2,
    latency_budget_s: float = 5.0,
    downstream_audiences: Sequence[str] = (),
    aliases: Sequence[str] = (),
    version: str = "",
    prepares: bool = False,
    takes_files: bool = False,
    takes_verified_queries: bool = False,
) -> AgentCard:
    """Build an agent's card; ``bos/agent/v1/card.proto`` defines each field.

    Args:
        name: Canonical name without suffix; ``{name}_agent`` is added as an alias.
        description: What the agent is for, in one sentence.
        capabilities: What it can do, as short terms.
        typical_use_cases: Example questions for the planner.
        keywords: Lower-case substrings of questions that count for the agent.
        selection_group: Order of the planner's heuristic.
        tools: ``@tool`` functions or methods.
        output_fields: Fields of its data by name, each with a description.
        required_context_keys: Context keys that it requires.
        secret_context_keys: Context keys with credentials that it receives.
        connection_kinds: Kinds of users' connections that its steps work with.
        default_timeout_s: Seconds for one attempt.
        max_retries: Attempts after the first.
        latency_budget_s: Usual duration in seconds.
        downstream_audiences: Services it calls on behalf of a step.
        aliases: Other names accepted on input.
        version: Version of the agent's code.
        prepares: Whether to call ``Agent.prepare``; an override of it is detected anyway.
        takes_files: Whether its steps are sent the files of earlier steps
            (``AgentTask.input_files``).
        takes_verified_queries: Whether its steps are given verified queries that are like their
            question (``AgentInput.verified_queries``).
    """
    return AgentCard(
        name=name,
        description=description,
        capabilities=capabilities,
        typical_use_cases=typical_use_cases,
        keywords=keywords,
        selection_group=selection_group,
        tools=[tool.card for tool in tools],
        output_fields=[
            OutputField(name=field, description=what)
            for field, what in (output_fields or {}).items()
        ],
        required_context_keys=required_context_keys,
        secret_context_keys=secret_context_keys,
        connection_kinds=connection_kinds,
        default_timeout=_duration(default_timeout_s),
        max_retries=max_retries,
        latency_budget=_duration(latency_budget_s),
        downstream_audiences=downstream_audiences,
        aliases=list(dict.fromkeys([f"{name}_agent", *aliases])),
        version=version,
        prepares=prepares,
        takes_files=takes_files,
        takes_verified_queries=takes_verified_queries,
    )


def served_card(agent: Agent, *, step_timeout_s: float | None = None) -> AgentCard:
    """Card as published by the service: completed from the agent's class and settings.

    Args:
        agent: The agent.
        step_timeout_s: Seconds for one attempt, overriding the card; None: the card's.
    """
    card = AgentCard()
    card.CopyFrom(agent.card)
    card.prepares = card.prepares or type(agent).prepare is not Agent.prepare
    if step_timeout_s is not None:
        card.default_timeout.CopyFrom(_duration(step_timeout_s))
    return card


def check_tools(agent: Agent) -> None:
    """Refuse an agent whose card and code disagree about its tools.

    Raises:
        ConfigurationError: names the tools that differ.
    """
    implemented = {tool.name: tool.card for tool in agent.all_tools()}
    declared = {card.name: card for card in agent.card.tools}
    differing = sorted(
        name
        for name in implemented.keys() | declared.keys()
        if implemented.get(name) != declared.get(name)
    )
    if differing or len(declared) != len(agent.card.tools):
        raise ConfigurationError(
            f"The card of agent {agent.card.name} and its code disagree about these tools: "
            f"{', '.join(differing) or 'one is listed twice'}. "
            "Build the card with agent_card(tools=[…]) from the functions marked @tool."
        )


def _duration(seconds: float) -> duration_pb2.Duration:
    duration = duration_pb2.Duration()
    duration.FromTimedelta(timedelta(seconds=seconds))
    return duration
