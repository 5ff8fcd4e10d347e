"""`make trial NAME=model` judges answers, and its exit code says whether the wire held.

Real servers are built and asked by that target alone, outside the tests: what is tested here is
asked of the scripted model, and of no model at all.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bos.gateway.v1 import RunEvent, RunStatus
from bos.planner.v1 import Intent
from bos_chassis.values import to_value_map
from bos_demo.questions import load_questions
from bos_testkit.runs import SeenRun

from .bos_try.calls import UNEXPECTED, Call
from .bos_try.judge import broken_wire, judge, stages_of
from .bos_try.servers import slow_settings

HERE = Path(__file__).parent
QUESTIONS = {question.id: question for question in load_questions()}
DAYS, POEM = QUESTIONS["days-between"], QUESTIONS["poem"]
SUCCEEDED = RunStatus.RUN_STATUS_SUCCEEDED
_SETTINGS = re.compile(r"BOS_|OPENAI_|AZURE_|OTEL_|.*_MODEL|.*_TEMPERATURE")


def run_of(status: Any, answer: str = "", streamed: str | None = None) -> SeenRun:
    """A run that ended so; ``streamed`` where it differs from the answer."""
    events = [RunEvent(), RunEvent(), RunEvent(), RunEvent()]
    events[0].run_accepted.question = "?"
    events[1].answer_started.attempt = 1
    events[2].answer_delta.attempt = 1
    events[2].answer_delta.text = answer if streamed is None else streamed
    response = events[3].run_finished.response
    response.status, response.answer = status, answer
    for number, event in enumerate(events):
        event.create_time.FromSeconds(1_000 + number)
    return SeenRun(events)


def call(outcome: str = "ok") -> Call:
    return Call("sql", "json", outcome, 1.0, 10, 5, 0, "stop")


def test_an_answer_with_every_fact_is_right_and_one_without_is_wrong() -> None:
    right = judge(DAYS, [90, "Monday"], run_of(SUCCEEDED, "90 days, a monday"), person=False)
    wrong = judge(DAYS, [90, "Monday"], run_of(SUCCEEDED, "91 days, a monday"), person=False)

    assert right.verdict == "right"
    assert (wrong.verdict, wrong.missing) == ("wrong", ("90",))
    assert "1 of 2 facts" in wrong.note


def test_report_on_a_wrong_answer_says_whether_agents_had_found_the_facts() -> None:
    run = run_of(SUCCEEDED, "Some days.")
    result = run.response.agent_results.add(agent_name="computation")
    result.data.CopyFrom(to_value_map({"days": 90}))

    assert "1 of them in what the agents found" in judge(DAYS, [90], run, person=False).note
    assert "found" not in judge(DAYS, [91], run, person=False).note


def test_questions_back_are_neither_right_nor_wrong() -> None:
    run = run_of(RunStatus.RUN_STATUS_CLARIFICATION_NEEDED)
    run.response.clarification.questions.add(question="Which year?")

    asked = judge(DAYS, [90], run, person=False)
    assert (asked.verdict, asked.note) == ("asked", "Which year?")
    # An approval was requested; there was no approver.
    assert judge(DAYS, [90], run_of(SUCCEEDED, "90"), person=True).verdict == "asked"


def test_a_failed_run_names_its_error() -> None:
    run = run_of(RunStatus.RUN_STATUS_FAILED, "Sorry.")
    run.response.error.type, run.response.error.message = "Unavailable", "No model."

    failed = judge(DAYS, [90], run, person=False)
    assert (failed.verdict, failed.note) == ("failed", "Unavailable: No model.")


def test_talk_is_judged_by_its_kind_and_not_by_its_words() -> None:
    run = run_of(SUCCEEDED, "No verse from me.")
    run.response.intent.intent = Intent.INTENT_OUT_OF_SCOPE
    assert judge(POEM, ["outside"], run, person=False).verdict == "right"

    run.response.intent.intent = Intent.INTENT_DATA_QA
    assert judge(POEM, ["outside"], run, person=False).verdict == "wrong"

    run.response.intent.intent = Intent.INTENT_OUT_OF_SCOPE
    run.response.agent_results.add(agent_name="sql")
    assert "asked sql" in judge(POEM, ["outside"], run, person=False).note


def test_wire_holds_for_any_reply_and_any_refused_call() -> None:
    nonsense = run_of(SUCCEEDED, "customers(id, name) customers(id, name)")
    refused = [call(), call("model_output_invalid"), call("model_timeout")]
    assert broken_wire(nonsense, refused, []) == []

    failed = run_of(RunStatus.RUN_STATUS_FAILED, "Sorry.")
    failed.response.error.type = "Unavailable"
    assert broken_wire(failed, refused, []) == []


@pytest.mark.parametrize(
    ("run", "calls", "exceptions", "said"),
    [
        (run_of(SUCCEEDED, "5"), [call(UNEXPECTED)], [], "without a named error"),
        (run_of(SUCCEEDED, "5"), [], ["step failed unexpectedly"], "unexpected exception"),
        (run_of(SUCCEEDED, "5", streamed="6"), [], [], "not what was streamed"),
        (run_of(SUCCEEDED), [], [], "without a word"),
        (run_of(RunStatus.RUN_STATUS_FAILED, "Sorry."), [], [], "failed without a named error"),
        (run_of(RunStatus.RUN_STATUS_CLARIFICATION_NEEDED), [], [], "without a question"),
    ],
)
def test_broken_wire_is_reported(
    run: SeenRun, calls: list[Call], exceptions: list[str], said: str
) -> None:
    (broken,) = broken_wire(run, calls, exceptions)
    assert said in broken


def test_seconds_are_reported_by_stage_and_repetitions_added_up() -> None:
    def at(second: int, **fields: Any) -> RunEvent:
        event = RunEvent(**fields)
        event.create_time.FromSeconds(second)
        return event

    step = {"step_id": "q", "agent_name": "sql"}
    events = [
        at(0, run_accepted={}),
        at(2, planned={}),
        at(2, step_started=step),
        at(5, step_finished={"step_id": "q"}),
        at(5, revision_started={}),
        at(6, planned={"revision": 1}),
        at(6, step_started=step),
        at(10, step_finished={"step_id": "q"}),
        at(10, answer_started={"attempt": 1}),
        at(11, answer_delta={"attempt": 1, "text": "lost"}),
        at(12, answer_started={"attempt": 2}),
        at(14, answer_delta={"attempt": 2, "text": "kept"}),
        at(15, run_finished={}),
    ]
    stages = stages_of(events)

    assert dict(stages.parts) == {"plan": 2, "q (sql)": 7, "replan": 1, "compose": 3}
    assert stages.first_word == 14


def try_model(
    *arguments: str, working: Path, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The command as make starts it, without the developer's settings."""
    kept = {name: value for name, value in os.environ.items() if not _SETTINGS.match(name)}
    output = ("--output", str(working / "tried.json"))
    return subprocess.run(
        [sys.executable, str(HERE / "try_model.py"), *arguments, *output],
        env=kept | (environment or {}),
        cwd=working,
        capture_output=True,
        text=True,
        timeout=280,
    )


@pytest.mark.timeout(600)
def test_the_scripted_model_answers_everything_right(tmp_path: Path) -> None:
    asked = ("days-between", "top-five-customers-share")
    named = ("--model", "scripted", "--questions", ",".join(asked))
    done = try_model(*named, "--at-least", "100", working=tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 questions: 2 right, 0 wrong, 0 asked, 0 failed." in done.stdout
    report = json.loads((tmp_path / "tried.json").read_text())
    assert [each["question_id"] for each in report["questions"]] == list(asked)
    for each in report["questions"]:
        agents = {call["agent"] for call in each["calls"]}
        assert {"planner", "composer", "memory", "computation"} <= agents
        assert all(call["input_tokens"] and call["output_tokens"] for call in each["calls"])
        assert next(iter(each["stages"]["seconds"])) == "plan"
        assert list(each["stages"]["seconds"])[-1] == "compose"


@pytest.mark.timeout(600)
def test_an_endpoint_that_is_not_there_does_not_pass(tmp_path: Path) -> None:
    """Fixed rules plan and answer in its stead, which no model has earned."""
    unreachable = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "BOS_MODEL": "none"}
    done = try_model("--wire", "--questions", "poem", working=tmp_path, environment=unreachable)

    assert done.returncode == 1, done.stdout + done.stderr
    assert "no reply as JSON could be used; no answer was streamed" in done.stdout
    # The first caller finds out; the others are spared the attempt.
    assert re.search(r"planner model_(unavailable|circuit_open)", done.stdout)
    assert "model_unavailable 1x" in done.stdout


def test_without_a_model_it_says_what_to_set(tmp_path: Path) -> None:
    done = try_model(working=tmp_path)
    assert done.returncode == 2
    assert "OPENAI_BASE_URL and BOS_MODEL" in done.stderr
    assert "MODEL=llama" in done.stderr


def test_an_unknown_question_is_named_beside_those_there_are(tmp_path: Path) -> None:
    done = try_model("--model", "scripted", "--questions", "poem,nonsense", working=tmp_path)
    assert done.returncode == 2
    assert "no demo question nonsense" in done.stderr
    assert "days-between" in done.stderr


def test_a_package_that_is_not_what_it_was_is_not_built(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, says in {
        "uname": "echo Linux x86_64",
        "npm": "",
        "git": "",
        "g++": "",
        "gcc": "",
    }.items():
        (tools / name).write_text(f"#!/bin/sh\n{says}\n")
        (tools / name).chmod(0o755)
    package = tmp_path / "home" / "node-llama-cpp-linux-x64-3.22.1.tgz"
    package.parent.mkdir()
    package.write_bytes(b"something else")

    done = subprocess.run(
        [str(HERE / "llama.sh"), "build"],
        env=os.environ
        | {"PATH": f"{tools}:{os.environ['PATH']}", "LLAMA_HOME": str(package.parent)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "is not the one this was written for" in done.stderr
    assert not package.exists()


def test_own_server_is_not_built(tmp_path: Path) -> None:
    own = {"LLAMA_SERVER": "/opt/llama-server", "LLAMA_MODEL": "/opt/model.gguf"}
    done = subprocess.run(
        [str(HERE / "llama.sh"), "build"],
        env=os.environ | own | {"LLAMA_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "/opt/llama-server /opt/model.gguf\n"
    assert not (tmp_path / "home").exists()


def test_slow_models_are_given_the_times_that_the_docs_tell_people() -> None:
    settings = slow_settings()
    report = (HERE.parents[2] / "docs/models.md").read_text()

    assert settings["BOS_MODEL_TIER"] == "small"
    times = {name: value for name, value in settings.items() if name.endswith("_S")}
    assert float(times["BOS_SQL_STEP_TIMEOUT_S"]) >= 300
    assert all(f"\n{name}={value}\n" in report for name, value in times.items())
