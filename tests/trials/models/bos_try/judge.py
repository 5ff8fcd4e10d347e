"""What became of one question: right, wrong, asked back or failed, and whether the wire held."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from bos.gateway.v1 import OrchestratorResponse, RunEvent, RunStatus
from bos.planner.v1 import Intent
from bos_chassis.values import from_value, from_value_map
from bos_demo.expectations import mentions
from bos_demo.questions import Question
from bos_testkit.runs import SeenRun

from .calls import UNEXPECTED, Call

Verdict = Literal["right", "wrong", "asked", "failed"]
VERDICTS: tuple[Verdict, ...] = ("right", "wrong", "asked", "failed")

_ANSWERED = (RunStatus.RUN_STATUS_SUCCEEDED, RunStatus.RUN_STATUS_PARTIALLY_SUCCEEDED)


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict and what it rests on."""

    verdict: Verdict
    note: str = ""
    """Why it is not right, or what else is worth a look, for people."""
    missing: tuple[str, ...] = ()
    """Facts that the answer does not state."""


@dataclass(frozen=True, slots=True)
class Stages:
    """Seconds of a run by stage, in the order in which they began."""

    parts: tuple[tuple[str, float], ...] = ()
    first_word: float | None = None
    """From the question to the first text of the answer that counts."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Report about one question."""

    question_id: str
    judgement: Judgement
    seconds: float
    answer: str = ""
    status: str = ""
    plan: str = ""
    """Where its plans came from, and the agents of the last one."""
    by_model: bool = False
    """The answer was written by the model, not by rule."""
    cost: float | None = None
    """Dollars; None if no price is known."""
    stages: Stages = field(default_factory=Stages)
    calls: tuple[Call, ...] = ()
    broken: tuple[str, ...] = ()
    """What a run must never do, for any reply of the model."""
    since_ns: int = 0
    """When it was asked, in nanoseconds of the clock."""


def judge(question: Question, facts: Sequence[Any], run: SeenRun, *, person: bool) -> Judgement:
    """Compare an ended run with what the demo expects.

    Args:
        question: What was asked.
        facts: What the answer must state.
        run: What came.
        person: A step wanted a person's approval, which was denied.
    """
    response = run.response
    if person:
        return Judgement("asked", "wanted a person's approval")
    if response.status == RunStatus.RUN_STATUS_CLARIFICATION_NEEDED:
        asked = [each.question for each in response.clarification.questions]
        return Judgement("asked", "; ".join(asked))
    if response.status not in _ANSWERED:
        return Judgement("failed", f"{response.error.type}: {response.error.message}")
    if not question.steps:
        return _judge_talk(question, response)
    return _judge_facts(facts, response)


def _judge_talk(question: Question, response: OrchestratorResponse) -> Judgement:
    """Words are free where nothing is looked up: kind of question and no agent are what counts."""
    intent = Intent.Name(response.intent.intent).removeprefix("INTENT_")
    if response.agent_results:
        agents = ", ".join(result.agent_name for result in response.agent_results)
        return Judgement("wrong", f"needs no agent, asked {agents}")
    if intent != question.intent:
        return Judgement("wrong", f"taken for {intent}, not {question.intent}")
    return Judgement("right")


def _judge_facts(facts: Sequence[Any], response: OrchestratorResponse) -> Judgement:
    missing = [fact for fact in facts if not mentions(response.answer, fact)]
    if not missing:
        return Judgement("right")
    found = _looked_up(response)
    in_data = sum(mentions(found, fact) for fact in missing)
    note = f"{len(missing)} of {len(facts)} facts are not in the answer"
    if in_data:
        note += f", {in_data} of them in what the agents found"
    return Judgement("wrong", note, tuple(str(fact) for fact in missing))


def _looked_up(response: OrchestratorResponse) -> str:
    """All that the agents found, as text."""
    parts: list[str] = []
    for result in response.agent_results:
        parts.append(result.answer)
        parts += [str(value) for value in from_value_map(result.data).values()]
        parts += [str(from_value(cell)) for row in result.table.rows for cell in row.values]
    return "\n".join(parts)


def stages_of(events: Sequence[RunEvent]) -> Stages:
    """Seconds of planning, of each execution of a step, and of composing."""
    began: dict[str, tuple[str, float]] = {}
    parts: dict[str, float] = {}
    first_word: float | None = None
    zero = _time(events[0])
    for event in events:
        at, kind = _time(event), event.WhichOneof("event")
        if kind in ("run_accepted", "revision_started"):
            began["plan"] = ("plan" if kind == "run_accepted" else "replan", at)
        elif kind == "planned":
            _end(began, parts, "plan", at)
        elif kind == "step_started":
            step = event.step_started
            began[step.step_id] = (f"{step.step_id} ({step.agent_name})", at)
        elif kind == "step_finished":
            _end(began, parts, event.step_finished.step_id, at)
        elif kind == "answer_started":
            began["compose"] = ("compose", at)
            first_word = None
        elif kind == "answer_delta" and first_word is None:
            first_word = at - zero
        elif kind == "run_finished":
            for key in list(began):
                _end(began, parts, key, at)
    return Stages(tuple(parts.items()), first_word)


def _end(began: dict[str, tuple[str, float]], parts: dict[str, float], key: str, at: float) -> None:
    if key in began:
        name, since = began.pop(key)
        parts[name] = parts.get(name, 0.0) + at - since


def _time(event: RunEvent) -> float:
    return event.create_time.ToDatetime().timestamp()


def broken_wire(run: SeenRun, calls: Sequence[Call], exceptions: Sequence[str]) -> list[str]:
    """What no model may make happen: see :attr:`Outcome.broken`.

    Args:
        run: What came.
        calls: Its model calls.
        exceptions: Unexpected exceptions in the log meanwhile.
    """
    broken = [f"unexpected exception: {each}" for each in exceptions]
    broken += [
        f"a call of {call.agent} ended without a named error"
        for call in calls
        if call.outcome == UNEXPECTED
    ]
    response = run.response
    asked = response.status == RunStatus.RUN_STATUS_CLARIFICATION_NEEDED
    if asked:
        if not response.clarification.questions:
            broken.append("asked back without a question")
    elif not response.answer:
        broken.append("ended without a word")
    if response.status == RunStatus.RUN_STATUS_FAILED and not response.error.type:
        broken.append("failed without a named error")
    if response.status in _ANSWERED and streamed(run.events).strip() != response.answer:
        broken.append("the answer is not what was streamed")
    return broken


def streamed(events: Sequence[RunEvent]) -> str:
    """The text of the answer's last attempt as it came."""
    attempts = [e.answer_started.attempt for e in events if e.HasField("answer_started")]
    deltas = [e.answer_delta for e in events if e.HasField("answer_delta")]
    return "".join(delta.text for delta in deltas if attempts and delta.attempt == attempts[-1])


def written_by_model(response: OrchestratorResponse) -> bool:
    """Whether the composer's model wrote the answer."""
    return any(
        event.agent == "composer"
        and "deterministic" in event.data
        and not from_value(event.data["deterministic"])
        for event in response.trace
    )
