"""README: its sample is the output of the demo's question, and it stays one page."""

import re
from pathlib import Path

from bos_demo.questions import SqlStep, load_questions

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
SAMPLE = README.partition("## What you see")[2].split("```")[1]
SCHEMA = (ROOT / "services/demo/src/bos_demo/schema.sql").read_text("utf-8")
(QUESTION,) = [each for each in load_questions() if each.id == "top-five-customers-share"]
STEP = re.compile(r"^ +\d\. (\w+) +(\w+) +(.+?)(?: \.\.\.)?(?: +\(after \w+\))?$", re.MULTILINE)
SOURCE = re.compile(r"^ +\[\d\] (\w+): (.+)$", re.MULTILINE)


def test_sample_shows_the_plan_of_the_question() -> None:
    assert QUESTION.rationale in SAMPLE
    shown = STEP.findall(SAMPLE)
    assert [(step_id, agent) for step_id, agent, _ in shown] == [
        (step.id, step.agent) for step in QUESTION.steps
    ]
    for (_, _, task), step in zip(shown, QUESTION.steps, strict=True):
        assert step.task.startswith(task)


def test_sample_shows_how_each_step_ended() -> None:
    for step in QUESTION.steps:
        assert re.search(rf"^✔ {step.id} {step.agent} succeeded in \d+ ms", SAMPLE, re.MULTILINE)


def test_sample_answers_in_the_words_of_the_steps() -> None:
    answer = " ".join(SAMPLE.split())
    for step in QUESTION.steps:
        beginning = step.answer.partition("{")[0].strip()
        assert beginning
        assert beginning in answer


def test_sample_names_sources_as_the_schema_describes_them() -> None:
    sources = SOURCE.findall(SAMPLE)
    query = QUESTION.steps[0]
    assert isinstance(query, SqlStep)
    assert [name for name, _ in sources] == list(query.tables)
    for _, text in sources:
        assert f"-- {text}" in SCHEMA


def test_readme_fits_on_a_page() -> None:
    assert README.count("\n") <= 110
