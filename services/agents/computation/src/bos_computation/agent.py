"""The computation agent: a calculator for arithmetic, model-written programs for the rest.

::

    plain arithmetic -> calculator -------------------------------------> answer
    anything else    -> plan -> run in the sandbox -> statement --------> answer
                          ^------- corrected, once ---'

The model writes the answer only where it is shown to the user unchanged; otherwise the composer
does, from the statement.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from bos.agent.v1 import SideEffectClass
from bos_agentkit import (
    Agent,
    AgentFailure,
    ToolContext,
    needed_reply,
    optional_reply,
    succeeded,
    tool,
)
from bos_agentkit.programs.result_tables import result_table
from bos_agentkit.programs.sandbox import ProgramError, ProgramFailed, Run
from bos_agentkit.programs.variables import mentioned_values, task_variables
from bos_chassis.values import render_value, to_value
from bos_computation import prompts
from bos_computation.answers import summary_table
from bos_computation.calculator import CalculationError, calculate
from bos_computation.card import computation_card
from bos_computation.expressions import find_expression
from bos_computation.replies import ComputationPlan, ComputationSummary
from bos_errors import AgentErrorType, PermissionDenied
from bos_llm import NoReply
from bos_llm.fallback import plain_sentence
from bos_llm.numbers.check import ungrounded_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bos.agent.v1 import AgentResult
    from bos.common.v1 import Table
    from bos_agentkit import AgentTask
    from bos_agentkit.programs.sandbox import Sandbox
    from bos_computation.settings import ComputationSettings
    from bos_llm import Message, Model, ModelNotConfigured

_NONE = SideEffectClass.SIDE_EFFECT_CLASS_NONE


class ComputationAgent(Agent):
    """Agent for computations: arithmetic without a model, the rest by a program in the sandbox.

    Args:
        settings: Limits.
        sandbox: Client of the sandbox.
        model: Writes programs and answers; None: only arithmetic.
        clock: The current time, for steps whose context names no date.
    """

    def __init__(
        self,
        settings: ComputationSettings,
        sandbox: Sandbox,
        model: Model | None,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._settings = settings
        self._sandbox = sandbox
        self._model = model
        self._clock = clock
        self.card = computation_card(self.all_tools())

    @tool(
        description="Calculate one arithmetic expression exactly: numbers, + - * / // % **, "
        "parentheses, abs, max, min, round, sqrt, sum. Needs no model.",
        side_effect=_NONE,
        aliases=("CalculatorTool",),
    )
    async def calculate(self, expression: str) -> dict[str, Any]:
        """Calculate the expression."""
        return {"result": calculate(expression)}

    @tool(
        description="Run a small Python program in the sandbox; its variables are the inputs and "
        "outputs of earlier steps.",
        side_effect=_NONE,
    )
    async def run_program(self, code: str, context: ToolContext) -> dict[str, Any]:
        """Run the program with outputs of other steps as variables; returns result and output."""
        task = context.task
        task.partial(code=code)
        task.usage.api_call()
        inputs = mentioned_values(task_variables(task, self._clock), code)
        try:
            run = await self._sandbox.run(code, inputs, remaining_s=task.remaining_s())
        except ProgramError as error:
            task.partial(stdout=error.stdout)
            raise
        task.partial(stdout=run.stdout, result=run.result)
        return {"result": run.result, "stdout": run.stdout}

    async def execute(self, task: AgentTask) -> AgentResult:
        """Execute one step."""
        expression = _expression(task)
        if expression is not None:
            return await self._calculated(task, expression)
        if not _may_use(task, "run_program"):
            raise PermissionDenied(
                "The plan allows only the calculator, and the task is not plain arithmetic.",
                reason="TOOL_NOT_ALLOWED",
            )
        run, explanation = await self._solve(task)
        return await self._answered(task, run, explanation)

    async def _calculated(self, task: AgentTask, expression: str) -> AgentResult:
        task.trace.decision("Plain arithmetic, no model needed", expression=expression)
        try:
            value = (await task.tools.call("calculate", expression=expression))["result"]
        except CalculationError as error:
            raise AgentFailure(
                AgentErrorType.CALCULATION_ERROR,
                f"{expression[:200]} cannot be calculated. {error.message}",
                {"expression": expression},
            ) from error
        text = render_value(to_value(value))
        return succeeded(
            task,
            answer=f"{expression} = {text}",
            data={"result": value, "stdout": "", "code": expression, "explanation": ""},
        )

    async def _solve(self, task: AgentTask) -> tuple[Run, str]:
        """Run the plan's or the model's program, with corrections; returns it with its result.

        Raises:
            AgentFailure: no model is configured, or the program failed.
        """
        given = _given_program(task)
        if given is not None:
            return await self._run(task, given), ""
        variables = task_variables(task, self._clock)
        plan = await self._plan(task, prompts.plan_messages(task, variables), "Planned a program")
        for _ in range(self._settings.max_corrections):
            try:
                return await self._run(task, plan.code), plan.explanation
            except ProgramFailed as failure:
                task.trace.message(
                    "The program failed; asking for a better one", error=failure.error
                )
                messages = prompts.correction_messages(task, variables, plan, failure.error)
            plan = await self._plan(task, messages, "Corrected the program")
        return await self._run(task, plan.code), plan.explanation

    async def _plan(
        self, task: AgentTask, messages: Sequence[Message], decision: str
    ) -> ComputationPlan:
        plan = await needed_reply(task, self._model, messages, ComputationPlan, no_model=_no_model)
        task.trace.decision(
            decision, code=plan.code, explanation=plan.explanation, inputs=plan.inputs
        )
        task.partial(code=plan.code, explanation=plan.explanation)
        return plan

    async def _run(self, task: AgentTask, code: str) -> Run:
        ended = await task.tools.call("run_program", code=code)
        return Run(code, ended["result"], ended["stdout"])

    async def _answered(self, task: AgentTask, run: Run, explanation: str) -> AgentResult:
        if task.input.is_final_answer:
            answer, summarised = await self._summary(task, run)
        else:
            answer, summarised = plain_sentence(run.result, run.stdout), None
        # Rows of the program are exact; the model's may be rounded or incomplete.
        table = result_table(run.result) or summarised
        task.trace.result("Computed", answer=answer)
        return succeeded(
            task,
            answer=answer,
            table=table,
            data={
                "result": run.result,
                "stdout": run.stdout,
                "code": run.code,
                "explanation": explanation,
            },
        )

    async def _summary(self, task: AgentTask, run: Run) -> tuple[str, Table | None]:
        """Answer by the model; a plain sentence if that fails or does not pass the number check."""
        plain = plain_sentence(run.result, run.stdout)
        seconds = min(self._settings.summary_timeout_s, task.remaining_s() * 0.8)
        try:
            summary = await optional_reply(
                task,
                self._model,
                lambda: prompts.summary_messages(task, run),
                ComputationSummary,
                within_s=seconds,
            )
        except NoReply as failure:
            task.trace.message(
                "No summary from the model; stating the result plainly", error=failure.error_type
            )
            return plain, None
        sources = [
            run.result,
            run.stdout,
            task.effective_task,
            task.input.question,
            run.code,
            task.arguments,
            task.dependencies,
        ]
        said = "\n".join([summary.answer, *_cells(summary)])
        strange = ungrounded_numbers(said, sources)
        if strange:
            task.trace.message(
                "The model's summary holds numbers that the program did not give; not used",
                numbers=strange,
            )
            return plain, None
        return summary.answer, summary_table(summary.table)


def _expression(task: AgentTask) -> str | None:
    """Expression of a step that is plain arithmetic and may use the calculator; else None."""
    if not _may_use(task, "calculate"):
        return None
    given = task.arguments.get("expression")
    if task.input.tool_name == "calculate" and isinstance(given, str) and given.strip():
        # As the plan wrote it, or in words and signs of everyday use.
        return find_expression(given) or given.strip()
    return find_expression(task.effective_task)


def _given_program(task: AgentTask) -> str | None:
    """Program given by the plan."""
    code = task.arguments.get("code")
    named = task.input.tool_name == "run_program"
    return code if named and isinstance(code, str) and code.strip() else None


def _may_use(task: AgentTask, tool: str) -> bool:
    return any(card.name == tool for card in task.tools.allowed)


def _no_model(_: ModelNotConfigured) -> AgentFailure:
    return AgentFailure(
        AgentErrorType.CONFIGURATION_ERROR,
        "This computation needs a language model to write a program, and none is configured. "
        "Plain arithmetic such as 12.5 * (3 + 4) works without one. Set OPENAI_API_KEY, or "
        "OPENAI_BASE_URL and BOS_MODEL.",
    )


def _cells(summary: ComputationSummary) -> list[str]:
    rows = summary.table.rows if summary.table else []
    return [str(cell) for row in rows for cell in row]
