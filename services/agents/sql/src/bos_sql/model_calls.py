"""Model calls of one step of the SQL agent, required and optional ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeVar

from pydantic import BaseModel

from bos_agentkit import AgentFailure, needed_reply, optional_reply
from bos_errors import AgentErrorType
from bos_llm import NoReply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bos_agentkit import AgentTask
    from bos_llm import Message, Model, ModelNotConfigured

T = TypeVar("T", bound=BaseModel)


class ModelCalls:
    """Model calls of one step.

    Args:
        model: The agent's model; None if the process has none.
        task: The step, for usage, time and trace.
    """

    def __init__(self, model: Model | None, task: AgentTask) -> None:
        self._model = model
        self._task = task

    @property
    def tier(self) -> Literal["standard", "small"]:
        """Capability tier of the model; standard where there is none."""
        return "standard" if self._model is None else self._model.tier

    async def required(
        self,
        messages: Sequence[Message],
        schema: type[T],
        *,
        form_in: Literal["system", "last"] = "last",
    ) -> T:
        """Call the model for a reply that the step requires.

        The reply's schema belongs into the last message where the preceding ones are shared.

        Raises:
            AgentFailure: ConfigurationError: no model is configured.
            BosError: from ``bos_llm``: the model is unavailable, refuses, or its reply is invalid.
        """
        return await needed_reply(
            self._task, self._model, messages, schema, no_model=_no_model, form_in=form_in
        )

    async def optional(
        self,
        messages: Sequence[Message],
        schema: type[T],
        *,
        form_in: Literal["system", "last"] = "last",
        share: float = 1.0,
    ) -> T | None:
        """Call the model for an optional reply; None, with a trace event, if the call fails.

        Its time limit is ``share`` of the time left.
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
    return AgentFailure(
        AgentErrorType.CONFIGURATION_ERROR, f"Writing a query needs a model. {error.message}"
    )
