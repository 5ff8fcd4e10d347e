"""Plans as data: references between steps, validation, stages and order. Pure."""

from bos_plans.graph import dependencies, execution_order, stages
from bos_plans.references import (
    ReferenceUnresolved,
    malformed_references,
    output_field,
    references_of,
    resolve_text,
    resolve_value,
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
    "MAX_PLAN_BYTES",
    "MAX_TASK_CHARS",
    "ReferenceUnresolved",
    "dependencies",
    "execution_order",
    "malformed_references",
    "output_field",
    "plan_problems",
    "references_of",
    "repetitions",
    "resolve_text",
    "resolve_value",
    "stages",
    "with_implied_dependencies",
    "without_references",
    "work_of",
]
