"""Plans as data: references between steps, validation, order, heuristic plans. Pure."""

from bos_plans.bounds import MAX_VALUES, Extent, OutOfBounds, extent, is_duration, is_time
from bos_plans.graph import dependencies, execution_order, stages
from bos_plans.heuristic import (
    HEURISTIC,
    HEURISTIC_CONFIDENCE,
    Selection,
    heuristic_plan,
    independent_steps,
    missing_context,
    select,
    whole_question,
)
from bos_plans.known_agents import KNOWN_AGENTS
from bos_plans.names import (
    canonical_name,
    canonical_names,
    canonical_step,
    canonical_tool,
    shared_names,
    with_canonical_names,
)
from bos_plans.outcomes import (
    NOT_DONE,
    NOTHING_TO_REFER_TO,
    EndedStep,
    run_outcome,
    step_outcome,
)
from bos_plans.references import (
    InputTooLarge,
    References,
    ReferenceUnresolved,
    malformed_references,
    output_field,
    readable_task,
    references_of,
    without_references,
)
from bos_plans.validation import (
    MAX_PLAN_BYTES,
    MAX_TASK_CHARS,
    plan_problems,
    with_implied_dependencies,
)
from bos_plans.work import repetitions, work_of

__all__ = [
    "HEURISTIC",
    "HEURISTIC_CONFIDENCE",
    "KNOWN_AGENTS",
    "MAX_PLAN_BYTES",
    "MAX_TASK_CHARS",
    "MAX_VALUES",
    "NOTHING_TO_REFER_TO",
    "NOT_DONE",
    "EndedStep",
    "Extent",
    "InputTooLarge",
    "OutOfBounds",
    "ReferenceUnresolved",
    "References",
    "Selection",
    "canonical_name",
    "canonical_names",
    "canonical_step",
    "canonical_tool",
    "dependencies",
    "execution_order",
    "extent",
    "heuristic_plan",
    "independent_steps",
    "is_duration",
    "is_time",
    "malformed_references",
    "missing_context",
    "output_field",
    "plan_problems",
    "readable_task",
    "references_of",
    "repetitions",
    "run_outcome",
    "select",
    "shared_names",
    "stages",
    "step_outcome",
    "whole_question",
    "with_canonical_names",
    "with_implied_dependencies",
    "without_references",
    "work_of",
]
