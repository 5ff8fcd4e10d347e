"""Model calls of a step: usage counted, failures uniform."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeVar

from pydantic import BaseModel

from bos_llm import ModelNotConfigured, NoReply, attempt

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bos_agentkit.failures import AgentFailure
    from bos_agentkit.task import AgentTask
    from bos_llm import Message, Model

T = TypeVar("T", bound=BaseModel)
Form = Literal["system", "last"]


async def needed_reply(
    task: AgentTask,
    model: Model | None,
    messages: Sequence[Message],
    schema: type[T],
    *,
    no_model: Callable[[ModelNotConfigured], AgentFailure],
    form_in: Form = "system",
) -> T:
    """Reply that the step requires; a failed call fails the step.

    Args:
        task: The step.
        model: The agent's model; None if the process has none.
        messages: The conversation.
        schema: Schema of the reply.
        no_model: Message of the failure where no usable model is configured.
        form_in: As for ``Model.structured``.

    Raises:
        AgentFailure: of ``no_model``.
        BosError: as ``Model`` raises; usage of the calls is counted with the failed step.
    """
    try:
        if model is None:
            raise ModelNotConfigured(
                "None is set. Set OPENAI_API_KEY, or OPENAI_BASE_URL and BOS_MODEL."
            )
        reply = await model.structured(messages, schema, form_in=form_in)
    except ModelNotConfigured as error:
        raise no_model(error) from error
    task.usage.add(reply.usage)
    return reply.value


async def optional_reply(
    task: AgentTask,
    model: Model | None,
    prompt: Callable[[], Sequence[Message]],
    schema: type[T],
    *,
    within_s: float,
    form_in: Form = "system",
) -> T:
    """Optional reply, within ``within_s`` and before the step's deadline.

    Raises:
        NoReply: the call failed; arguments and reasons as for ``bos_llm.attempt``.
    """
    try:
        reply = await attempt(model, prompt, schema, within_s=within_s, form_in=form_in)
    except NoReply as failure:
        task.usage.add(failure.usage)
        raise
    task.usage.add(reply.usage)
    return reply.value
