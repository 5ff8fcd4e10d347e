"""Classification of approval instructions: they add to the task or replace it.

One short call of a cheap model. Without a model, or if the call fails in any way, they add to the
task, so that no part of the request is lost.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal

from google.protobuf import timestamp_pb2
from pydantic import BaseModel, Field

from bos.agent.v1 import InstructionMode
from bos.common.v1 import TraceEvent, TraceEventType
from bos.planner.v1 import ClassifyInstructionsResponse
from bos_chassis.values import to_value
from bos_llm import NoReply, TokenBudget, attempt, consumed, set_budget, set_model_choice
from bos_planner.prompts import instruction_messages

if TYPE_CHECKING:
    from bos.planner.v1 import ClassifyInstructionsRequest
    from bos_chassis.telemetry import Telemetry
    from bos_llm import Models

AGENT = "hitl_classifier"
"""Its model is set by ``HITL_CLASSIFIER_MODEL_PROVIDER`` and ``HITL_CLASSIFIER_MODEL``."""

_MODEL_TIMEOUT_S = 15.0
_ENHANCE = InstructionMode.INSTRUCTION_MODE_ENHANCE
_MODES = {"enhance": _ENHANCE, "override": InstructionMode.INSTRUCTION_MODE_OVERRIDE}


class Classification(BaseModel):
    """How the instructions relate to the task."""

    mode: Literal["enhance", "override"] = Field(
        description="enhance: the task and the instructions; override: the instructions instead"
    )


class InstructionClassifier:
    """Classifies approval instructions; stateless.

    Args:
        telemetry: For the log.
        models: Access to the model; without it all instructions add to the task.
    """

    def __init__(self, telemetry: Telemetry, *, models: Models | None) -> None:
        self._log = telemetry.logger("bos.planner.instructions")
        self._model = None if models is None else models.for_agent(AGENT)

    async def classify(self, request: ClassifyInstructionsRequest) -> ClassifyInstructionsResponse:
        """Classify instructions; failures of the model never reach the caller."""
        started = time.monotonic()
        set_budget(TokenBudget(request.token_budget if request.HasField("token_budget") else None))
        set_model_choice(request.model)
        try:
            reply = await attempt(
                self._model,
                lambda: instruction_messages(request),
                Classification,
                within_s=_MODEL_TIMEOUT_S,
                log=self._log,
            )
        except NoReply as failure:
            mode, usage, why = _ENHANCE, failure.usage, failure.message
        else:
            mode, usage, why = _MODES[reply.value.mode], reply.usage, ""
        return ClassifyInstructionsResponse(
            mode=mode, trace=[_trace_event(mode, why)], usage=consumed(usage, started)
        )


def _trace_event(mode: InstructionMode, why: str) -> TraceEvent:
    name = InstructionMode.Name(mode).removeprefix("INSTRUCTION_MODE_").lower()
    text = f"Instructions classified as {name}."
    now = timestamp_pb2.Timestamp()
    now.GetCurrentTime()
    return TraceEvent(
        type=TraceEventType.TRACE_EVENT_TYPE_DECISION,
        agent="planner",
        message=f"{text} {why}".strip(),
        data={"mode": to_value(name)},
        create_time=now,
    )
