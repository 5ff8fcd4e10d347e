import pytest

from bos.agent.v1 import AgentInput, ApprovalContext, InstructionMode
from bos_agentkit import effective_task
from bos_agentkit.effective_task import is_overridden

ENHANCED = """Complete BOTH the original task AND the additional user instructions below.

### Original Task
Send {it}

### User Enhanced Instructions
Add a {greeting}"""

OVERRIDDEN = """IMPORTANT — The user wants you to follow these override instructions
INSTEAD of the original task.

### User Override Instructions
Add a {greeting}

### Original Task (for reference only)
Send {it}"""


def step(instructions: str, mode: InstructionMode) -> AgentInput:
    context = ApprovalContext(user_instructions=instructions, instruction_mode=mode)
    return AgentInput(task="Send {it}", approval_context=context)


@pytest.mark.requirement("M-18")
def test_without_instructions_the_task_is_the_original_unchanged() -> None:
    assert effective_task(AgentInput(task="Send {it}")) == "Send {it}"
    blank = step(" \n", InstructionMode.INSTRUCTION_MODE_OVERRIDE)
    assert effective_task(blank) == "Send {it}"
    assert not is_overridden(blank)


@pytest.mark.parametrize(
    ("mode", "text", "overridden"),
    [
        (InstructionMode.INSTRUCTION_MODE_UNSPECIFIED, ENHANCED, False),
        (InstructionMode.INSTRUCTION_MODE_OVERRIDE, OVERRIDDEN, True),
    ],
)
@pytest.mark.requirement("M-17", "M-19", "M-20", "K-11")
def test_instructions_enhance_or_override_the_task(
    mode: InstructionMode, text: str, overridden: bool
) -> None:
    assert effective_task(step("Add a {greeting}", mode)) == text
    assert is_overridden(step("Add a {greeting}", mode)) is overridden
