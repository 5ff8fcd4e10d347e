"""Agent input of one step, built from the run's state. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from datetime import timedelta

from bos.agent.v1 import (
    AgentInput,
    AgentResult,
    ConnectionInput,
    InputFile,
    QueryExample,
    RetryConfig,
    TaskMetadata,
)
from bos.common.v1 import ValueMap
from bos.identity.v1 import ConnectionSecret
from bos.runlog.v1 import SubTask
from bos_gateway.core.clarification import question_of
from bos_gateway.core.result_limits import asked_bounds
from bos_gateway.core.run_state import SUCCEEDED, RunState, StepState
from bos_gateway.core.taint import is_tainted
from bos_plans import output_field

# What a dependent gets besides the data; `table` and `columns` would say the same as `rows`.
_OFFERED = ("answer", "rows", "row_count")


def agent_input(
    state: RunState,
    step: StepState,
    sub_task: SubTask,
    *,
    attempt: int,
    timeout_s: float,
    secrets: Mapping[str, str],
    connections: Sequence[ConnectionSecret] = (),
    files: Sequence[InputFile] = (),
    verified_queries: Sequence[QueryExample] = (),
    token_budget: int | None = None,
) -> AgentInput:
    """The input of one attempt at ``step``.

    Args:
        state: The run.
        step: The step.
        sub_task: Its task message, references resolved.
        attempt: Counted from 1.
        timeout_s: Time the attempt may take.
        secrets: Credentials of the run; only those that the agent's card declares are sent.
        connections: Of the user, that the agent may have.
        files: Of earlier steps, if the agent takes files.
        verified_queries: Examples for the step; those of other users taint it.
        token_budget: Model tokens the attempt may consume; None for no bound.
    """
    accepted, bounds = state.request, asked_bounds(state.request.request)
    card, declared = state.card(step.step.agent), _declared(state, step)
    return AgentInput(
        agent_id=step.agent_id,
        agent_name=step.step.agent,
        task=sub_task.task,
        entities={**(state.plan.entities if state.plan else {}), **step.step.entities},
        tools=step.step.tools,
        conversation_history=accepted.conversation_history,
        long_term_memory=accepted.long_term_memory,
        dependency_outputs={
            needed: _handed_on(state.outputs[needed])
            for needed in sorted(step.needs)
            if needed in state.outputs
        },
        sub_task_input=sub_task.sub_task_input,
        retry_config=RetryConfig(
            max_retries=card.max_retries if card else 0,
            backoff_multiplier=accepted.settings.backoff_multiplier,
            timeout=timedelta(milliseconds=int(timeout_s * 1000)),
        ),
        metadata=TaskMetadata(
            user_id=accepted.user_id,
            run_id=state.run_id,
            conversation_id=accepted.request.conversation_id,
            step_key=sub_task.sub_task_id,
            attempt=attempt,
        ),
        question=question_of(accepted),
        context=accepted.request.context,
        secrets={
            **{key: value for key, value in secrets.items() if key in declared},
            **{each.connection.kind: each.secret for each in connections},
        },
        connections=[
            ConnectionInput(
                kind=each.connection.kind,
                label=each.connection.label,
                fields=each.connection.fields,
            )
            for each in connections
        ],
        files=files,
        clarification_turn_count=accepted.clarification_turn_count,
        clarifications=accepted.clarifications,
        tool_name=sub_task.tool_name,
        tainted=is_tainted(state, step) or is_of_others(verified_queries),
        api_keys_config_ref=sub_task.api_keys_config_ref,
        # With wishes for the wording the composer has the last word, and its call is enough.
        is_final_answer=step.step.is_final_answer and not accepted.request.system_prompt,
        token_budget=token_budget,
        backend=accepted.request.backend,
        model=accepted.request.model,
        max_rows=bounds.get("max_rows"),
        max_columns=bounds.get("max_columns"),
        verified_queries=verified_queries,
    )


def is_of_others(examples: Sequence[QueryExample]) -> bool:
    """Whether one of the examples was written by another user."""
    return any(each.by_another_user for each in examples)


def question_of_step(state: RunState, sub_task: SubTask | None) -> str:
    """The question that a step answers, which stands by itself.

    It is the user's; of several steps, or in a conversation ("and in May?"), the step's task, which
    the planner has put into words.
    """
    alone = len(state.steps) == 1 and not state.request.conversation_history
    return (question_of(state.request) if alone or sub_task is None else sub_task.task).strip()


def upstream_files(state: RunState, step: StepState) -> list[InputFile]:
    """Files, without content, of the steps upstream of ``step``, nearest first.

    They need no taint of their own: a result that rests on another one carries its taint.
    """
    found: list[InputFile] = []
    waiting, seen = deque(sorted(step.needs)), set(step.needs)
    while waiting:
        step_id = waiting.popleft()
        if (result := state.outputs.get(step_id)) is None:
            continue
        found.extend(
            InputFile(
                name=file.name,
                media_type=file.media_type,
                digest=file.digest,
                size_bytes=file.size_bytes,
                step_id=step_id,
            )
            for file in result.files
        )
        further = [each for each in sorted(result.depends_on) if each not in seen]
        seen.update(further)
        waiting.extend(further)
    return found


def missing_secrets(state: RunState, step: StepState, secrets: Mapping[str, str]) -> list[str]:
    """Credentials that came with the question and that the step's agent needs, but are gone."""
    return sorted(_declared(state, step) & set(state.request.secret_keys) - secrets.keys())


def _declared(state: RunState, step: StepState) -> set[str]:
    """Keys of the credentials that the step's agent takes."""
    card = state.card(step.step.agent)
    return set(card.secret_context_keys) if card else set()


def _handed_on(result: AgentResult) -> ValueMap:
    """What a dependent step gets of ``result``: all of it, or its partial data if it failed."""
    succeeded = result.status == SUCCEEDED
    handed = ValueMap(fields=(result.data if succeeded else result.partial_data).fields)
    if succeeded:
        for name in _OFFERED:
            if name not in handed.fields and (value := output_field(result, name)) is not None:
                handed.fields[name].CopyFrom(value)
    elif "reason" not in handed.fields:
        handed.fields["reason"].string_value = result.error.type
    return handed
