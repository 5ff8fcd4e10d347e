"""Model calls of one step: usage counted, and what may fail without failing the step."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal, TypeVar

from pydantic import BaseModel

from bos_agentkit import CONFIGURATION_ERROR, AgentFailure
from bos_chassis.errors import BosError
from bos_llm import ModelNotConfigured, ModelOutputInvalid, ModelRefused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bos_agentkit import AgentTask
    from bos_llm import Message, Model

T = TypeVar("T", bound=BaseModel)

# Kept back for the result when a call that is only nice to have takes too long.
_RESERVE_S = 0.5


class Asker:
    """The model as one step uses it.

    Args:
        model: The agent's model; None if the process has none.
        task: The step, for usage, time and trace.
    """

    def __init__(self, model: Model | None, task: AgentTask) -> None:
        self._model = model
        self._task = task

    @property
    def tier(self) -> Literal["standard", "small"]:
        """What the model can be trusted with; without a model nothing is asked."""
        return "standard" if self._model is None else self._model.tier

    async def ask(
        self,
        messages: Sequence[Message],
        schema: type[T],
        *,
        form_in: Literal["system", "last"] = "last",
    ) -> T:
        """A reply without which the step cannot go on.

        The form of the reply belongs into the last message where all before it is shared.

        Raises:
            AgentFailure: ConfigurationError: no model is set.
            BosError: from ``bos_llm``: the model is unavailable, refuses or talks nonsense.
        """
        if self._model is None:
            raise AgentFailure(
                CONFIGURATION_ERROR,
                "Writing a query needs a model, and none is set. "
                "Set OPENAI_API_KEY, or OPENAI_BASE_URL and BOS_MODEL.",
            )
        try:
            reply = await self._model.structured(messages, schema, form_in=form_in)
        except ModelNotConfigured as error:
            raise AgentFailure(
                CONFIGURATION_ERROR, f"Writing a query needs a model. {error.message}"
            ) from error
        self._task.usage.add(reply.usage)
        return reply.value

    async def ask_if_possible(
        self,
        messages: Sequence[Message],
        schema: type[T],
        *,
        form_in: Literal["system", "last"] = "last",
        share: float = 1.0,
    ) -> T | None:
        """A reply that the step can do without: None, and a note in the trace, if there is none.

        It may take ``share`` of the time that is left.
        """
        try:
            async with asyncio.timeout(max(0.0, self._task.remaining_s() - _RESERVE_S) * share):
                return await self.ask(messages, schema, form_in=form_in)
        except TimeoutError:
            reason = "TIMEOUT"
        except BosError as error:
            reason = error.reason
            if isinstance(error, ModelOutputInvalid | ModelRefused) and error.usage is not None:
                self._task.usage.add(error.usage)
        self._task.trace.message(
            f"The model gave no {schema.__name__}; going on without it", reason=reason
        )
        return None
