"""Task of a step after the approver's instructions."""

from __future__ import annotations

from bos.agent.v1 import AgentInput, InstructionMode

_ENHANCE = """\
Complete BOTH the original task AND the additional user instructions below.

### Original Task
{task}

### User Enhanced Instructions
{instructions}"""

_OVERRIDE = """\
IMPORTANT — The user wants you to follow these override instructions
INSTEAD of the original task.

### User Override Instructions
{instructions}

### Original Task (for reference only)
{task}"""


def effective_task(input: AgentInput) -> str:
    """Task with the instructions given on approval; without instructions, the original task.

    Instructions of unspecified mode enhance the task.
    """
    instructions = input.approval_context.user_instructions
    if not instructions.strip():
        return input.task
    template = _OVERRIDE if is_overridden(input) else _ENHANCE
    return template.format(task=input.task, instructions=instructions)


def is_overridden(input: AgentInput) -> bool:
    """Whether an approver replaced the task; the composer looks for this marker."""
    context = input.approval_context
    return context.instruction_mode == InstructionMode.INSTRUCTION_MODE_OVERRIDE and bool(
        context.user_instructions.strip()
    )
