"""The code agent: full Python programs, run in the sandbox after approval.

::

    execute: model writes a program -> checked -> proposed          (the step waits, nothing runs)
    perform: the approved program -> sandbox, process tier -> statement -> answer, table, files

The model writes the answer only where it is shown to the user unchanged; otherwise the composer
does, from the statement.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from bos.agent.v1 import SideEffectClass
from bos_agentkit import (
    Agent,
    AgentFailure,
    ToolContext,
    awaiting_approval,
    needed_reply,
    optional_reply,
    succeeded,
    tool,
)
from bos_agentkit.programs.result_tables import result_table
from bos_agentkit.programs.sandbox import ProgramError
from bos_agentkit.programs.variables import TODAY, mentioned_values, task_variables
from bos_code import prompts
from bos_code.card import code_card
from bos_code.programs import input_digests, program_problem, with_helper
from bos_code.replies import CodeProposal, CodeSummary
from bos_errors import AgentErrorType, InvalidArgument
from bos_llm import NoReply
from bos_llm.fallback import plain_sentence
from bos_llm.numbers.check import ungrounded_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from bos.agent.v1 import AgentResult, ProposedAction
    from bos.sandbox.v1 import ProgramFile
    from bos_agentkit import AgentTask
    from bos_agentkit.programs.sandbox import Sandbox
    from bos_code.settings import CodeSettings
    from bos_llm import Message, Model, ModelNotConfigured

PROGRAM_NOT_USABLE = "ProgramNotUsable"
INPUTS_CHANGED = "InputsChanged"
_TOOL = "execute_code"


class CodeAgent(Agent):
    """Agent that proposes a model-written program and runs it once approved.

    Args:
        settings: Limits.
        sandbox: Client of the sandbox.
        model: Writes programs and answers; None: only programs given by plans.
        clock: The current time, for steps whose context names no date.
    """

    def __init__(
        self,
        settings: CodeSettings,
        sandbox: Sandbox,
        model: Model | None,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._settings = settings
        self._sandbox = sandbox
        self._model = model
        self._clock = clock
        self.card = code_card(self.all_tools())

    # Programs have no network and no access to other files, so running one twice is harmless;
    # approval is required anyway, as for all code.
    @tool(
        description="Run a Python program (numpy, pandas, matplotlib) in the isolated sandbox over "
        "inputs and outputs of earlier steps; figures and files come back. A person approves it.",
        requires_approval=True,
        side_effect=SideEffectClass.SIDE_EFFECT_CLASS_NONE,
    )
    async def execute_code(
        self,
        code: str,
        inputs: dict[str, str],
        today: date,
        explanation: str,
        context: ToolContext,
    ) -> dict[str, Any]:
        """Run the program; returns result, stdout, stderr, exit_code and names of files.

        Args:
            code: The whole program.
            inputs: Its variables by name, each with the digest of its value.
            today: The program's current date.
            explanation: What it does, for the approver.
            context: The step.
        """
        task = context.task
        values = {**_values_of(task, self._clock, code), TODAY: today}
        if input_digests(_without_today(values)) != inputs:
            raise AgentFailure(
                INPUTS_CHANGED,
                "The data of this step are not those that the program was approved for, so it was "
                "not run. Ask again.",
            )
        task.partial(code=code, explanation=explanation)
        task.usage.api_call()
        try:
            run = await self._sandbox.run(code, values, remaining_s=task.remaining_s())
        except ProgramError as error:
            task.partial(stdout=error.stdout, stderr=error.stderr, exit_code=error.exit_code)
            _attach(task, error.files)
            raise
        _attach(task, run.files)
        for problem in run.file_problems:
            task.trace.message(problem)
        return {
            "result": run.result,
            "stdout": run.stdout,
            "stderr": run.stderr,
            "exit_code": 0,
            "files": [file.name for file in run.files],
        }

    async def execute(self, task: AgentTask) -> AgentResult:
        """Propose a program without running it."""
        await self._sandbox.require_process_tier()
        proposal = await self._proposal(task)
        values = _values_of(task, self._clock, proposal.code)
        digests = input_digests(_without_today(values))
        arguments = {
            "code": proposal.code,
            "inputs": digests,
            TODAY: values[TODAY],
            "explanation": proposal.explanation,
        }
        action = task.tools.propose(
            _TOOL, arguments, summary=_summary_of(proposal, _without_today(values))
        )
        task.trace.decision(
            "Proposed a program", code=proposal.code, explanation=proposal.explanation
        )
        return awaiting_approval(task, [action], answer=proposal.explanation)

    async def perform(self, task: AgentTask, actions: Sequence[ProposedAction]) -> AgentResult:
        """Run exactly the approved program and answer from its result."""
        if len(actions) != 1:
            raise InvalidArgument.field("approval_context.approved_actions", "must be one program")
        fields = await task.tools.perform(actions[0])
        given = actions[0].arguments.fields
        code, explanation = given["code"].string_value, given["explanation"].string_value
        answer = await self._answer(task, code, fields)
        unnamed = [name for name in fields["files"] if name not in answer]
        if unnamed:
            answer += f"\n\nFiles: {', '.join(unnamed)}"
        task.trace.result("The program ran", files=fields["files"])
        return succeeded(
            task,
            answer=answer,
            table=result_table(fields["result"]),
            data={"code": code, "explanation": explanation, **fields},
        )

    async def _proposal(self, task: AgentTask) -> CodeProposal:
        """Program to propose, given by the plan or written by the model.

        Raises:
            AgentFailure: no model is configured, or none of its programs is valid.
        """
        given = _given_program(task)
        if given is not None:
            self._require_usable(given)
            return CodeProposal(code=given, explanation=task.effective_task)
        variables = task_variables(task, self._clock)
        messages = prompts.proposal_messages(task, variables)
        for _ in range(self._settings.max_corrections):
            proposal = await self._ask(task, messages)
            problem = program_problem(proposal.code, self._settings.max_code_bytes)
            if not problem:
                return proposal
            task.trace.message("The program does not parse; asking for a better one", error=problem)
            messages = prompts.correction_messages(task, variables, proposal, problem)
        proposal = await self._ask(task, messages)
        self._require_usable(proposal.code)
        return proposal

    async def _ask(self, task: AgentTask, messages: Sequence[Message]) -> CodeProposal:
        proposal = await needed_reply(task, self._model, messages, CodeProposal, no_model=_no_model)
        return proposal.model_copy(
            update={"code": with_helper(_normalise_line_ends(proposal.code))}
        )

    def _require_usable(self, code: str) -> None:
        problem = program_problem(code, self._settings.max_code_bytes)
        if problem:
            raise AgentFailure(
                PROGRAM_NOT_USABLE, f"No program that could be proposed: {problem}", {"code": code}
            )

    async def _answer(self, task: AgentTask, code: str, given: Mapping[str, Any]) -> str:
        """Answer by the model where it is final, else a plain sentence.

        Also a plain sentence if the model fails or its answer does not pass the number check.
        """
        plain = plain_sentence(given["result"], given["stdout"])
        if not task.input.is_final_answer:
            return plain
        seconds = min(self._settings.summary_timeout_s, task.remaining_s() * 0.8)
        try:
            summary = await optional_reply(
                task,
                self._model,
                lambda: prompts.summary_messages(task, code, given),
                CodeSummary,
                within_s=seconds,
            )
        except NoReply as failure:
            task.trace.message(
                "No summary from the model; stating the result plainly", error=failure.error_type
            )
            return plain
        answer = summary.answer
        sources = [given, code, task.effective_task, task.input.question]
        sources += [task.arguments, task.dependencies]
        strange = ungrounded_numbers(answer, sources)
        if strange:
            task.trace.message(
                "The model's summary holds numbers that the program did not give; not used",
                numbers=strange,
            )
            return plain
        return answer


def _values_of(task: AgentTask, clock: Callable[[], datetime], code: str) -> dict[str, Any]:
    """Values of the variables that ``code`` mentions, and of today."""
    return mentioned_values(task_variables(task, clock), code)


def _without_today(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != TODAY}


def _given_program(task: AgentTask) -> str | None:
    """Program given by the plan; None where the approver gave instructions."""
    code = task.arguments.get("code")
    if task.input.approval_context.user_instructions.strip():
        return None
    if task.input.tool_name != _TOOL or not isinstance(code, str) or not code.strip():
        return None
    return _normalise_line_ends(code)


def _normalise_line_ends(code: str) -> str:
    return code.replace("\r\n", "\n")


def _summary_of(proposal: CodeProposal, values: Mapping[str, Any]) -> str:
    """Summary of the proposed action for the approver."""
    lines = len(proposal.code.splitlines())
    reads = f" over {', '.join(values)}" if values else ""
    return f"Run a Python program of {lines} lines{reads}: {proposal.explanation}"


def _attach(task: AgentTask, files: Iterable[ProgramFile]) -> None:
    for file in files:
        try:
            task.attach_file(file.name, file.media_type, file.content)
        except ValueError as error:
            task.trace.message(f"{file.name} was left out: {error}.")


def _no_model(_: ModelNotConfigured) -> AgentFailure:
    return AgentFailure(
        AgentErrorType.CONFIGURATION_ERROR,
        "Writing a program needs a language model, and none is configured. Set OPENAI_API_KEY, or "
        "OPENAI_BASE_URL and BOS_MODEL.",
    )
