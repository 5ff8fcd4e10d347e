"""Model calls of one step: usage counted, and what may fail without failing the step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeVar

from pydantic import BaseModel

from bos_agentkit import CONFIGURATION_ERROR, AgentFailure, needed_reply, optional_reply
from bos_llm import NoReply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bos_agentkit import AgentTask
    from bos_llm import Message, Model, ModelNotConfigured

T = TypeVar("T", bound=BaseModel)


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
        return await needed_reply(
            self._task, self._model, messages, schema, no_model=_no_model, form_in=form_in
        )

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
            return await optional_reply(
                self._task,
                self._model,
                lambda: messages,
                schema,
                within_s=self._task.remaining_s() * share,
                form_in=form_in,
            )
        except NoReply as failure:
            self._task.trace.message(
                f"The model gave no {schema.__name__}; going on without it", reason=failure.reason
            )
            return None


def _no_model(error: ModelNotConfigured) -> AgentFailure:
    return AgentFailure(CONFIGURATION_ERROR, f"Writing a query needs a model. {error.message}")
