"""One step as an agent sees it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from bos.common.v1 import ValueMap
from bos_agentkit.effective_task import effective_task, is_overridden
from bos_agentkit.files import Files
from bos_agentkit.prompts import format_clarifications, format_user_profile
from bos_agentkit.toolbox import Toolbox
from bos_agentkit.trace import TraceRecorder
from bos_agentkit.usage import UsageMeter
from bos_chassis.values import from_value, from_value_map, to_value
from bos_llm import TokenBudget

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opentelemetry.trace import Tracer

    from bos.agent.v1 import AgentInput
    from bos_agentkit.tools import AgentTool

DEFAULT_TIMEOUT_S = 30.0


class AgentTask:
    """The input of one step, what may be used for it, and what is recorded about it.

    Args:
        input: As the gateway sent it.
        agent: Canonical name of the agent, for the trace.
        tools: All tools of the agent; the plan's list decides which of them may be called.
        timeout_s: Time for this attempt.
        tracer: For spans of tool calls.
    """

    def __init__(
        self,
        input: AgentInput,
        *,
        agent: str = "",
        tools: Sequence[AgentTool] = (),
        timeout_s: float = DEFAULT_TIMEOUT_S,
        tracer: Tracer | None = None,
    ) -> None:
        self.input = input
        self.agent = agent or input.agent_name
        self.effective_task = effective_task(input)
        """What to do; use this in prompts, never ``input.task``."""
        self.overridden = is_overridden(input)
        """Whether a person replaced the task on approval."""
        self.trace = TraceRecorder(self.agent)
        self.usage = UsageMeter()
        bound = input.token_budget if input.HasField("token_budget") else None
        self.budget = TokenBudget(bound)
        """What the model calls of this attempt may consume and have consumed, bounded or not."""
        self.tainted = input.tainted
        """Whether the step rests on untrusted content (web, mail, documents)."""
        self.tools = Toolbox(tools, self, tracer)
        self.files = Files()
        """Files that go with the result."""
        self.timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s
        self._partial = ValueMap()

    @property
    def profile(self) -> str:
        """What is remembered about the user, as prompts show it."""
        return format_user_profile(self.input.long_term_memory)

    @property
    def settled(self) -> str:
        """What the user has settled about the question, as prompts show it."""
        return format_clarifications(self.input.clarifications)

    @property
    def dependencies(self) -> dict[str, dict[str, Any]]:
        """Data of the steps this one depends on, by step id."""
        outputs = self.input.dependency_outputs
        return {step: from_value_map(outputs[step]) for step in sorted(outputs)}

    @property
    def arguments(self) -> dict[str, Any]:
        """The plan's input for this step, references resolved."""
        given = self.input.sub_task_input
        return {name: from_value(given[name]) for name in sorted(given)}

    @property
    def partial_data(self) -> ValueMap | None:
        """What :meth:`partial` noted so far; None if nothing."""
        return self._partial if self._partial.fields else None

    def remaining_s(self) -> float:
        """Seconds left for this attempt, at least 0."""
        return max(0.0, self._deadline - time.monotonic())

    def partial(self, **data: Any) -> None:
        """Note what is there already: it is handed on if the step fails or runs out of time.

        Raises:
            TypeError, ValueError: from ``to_value``.
        """
        for name, value in data.items():
            self._partial.fields[name].CopyFrom(to_value(value))

    def attach_file(self, name: str, media_type: str, content: bytes) -> None:
        """Add a file, such as a figure, that goes with the result; the gateway stores and lists it.

        Files of a result that awaits approval, or asks something, are left out.

        Args:
            name: For people, without any folder.
            media_type: Such as "image/png".
            content: At most 4 MiB, and 6 MiB with all other files of the step, of which there may
                be 16.

        Raises:
            ValueError: the name, the media type or a size is not fit.
        """
        self.files.add(name, media_type, content)

    def taint(self) -> None:
        """Untrusted content was read: from now on every side effect needs approval."""
        self.tainted = True
