"""Stored plans."""

from pathlib import Path

import pytest

from bos_errors import ConfigurationError
from bos_planner.reply import read_value
from bos_planner.templates import Templates, load_templates

pytestmark = pytest.mark.requirement("B-17")

FILE = """
- name: top customers
  questions: ["Top {count} customers by revenue", "Best customers"]
  agents: [sql, computation]
  steps:
    - step_id: top
      agent: sql
      task: "List the {count} customers with the highest revenue."
    - step_id: share
      agent: computation
      task: "Work out the share."
      sub_task_input:
        - {name: rows, value: "@{outputs.top.table}"}
        - {name: limit, value: "{count}"}
"""


@pytest.fixture
def templates(tmp_path: Path) -> Templates:
    path = tmp_path / "plans.yaml"
    path.write_text(FILE, encoding="utf-8")
    return load_templates(path)


def test_stored_plan_matches_regardless_of_case_and_punctuation(templates: Templates) -> None:
    reply = templates.match("  top 5  CUSTOMERS by revenue? ")
    assert reply is not None
    assert reply.intent == "DATA_QA"
    assert reply.confidence == 1.0
    assert reply.rationale == 'The stored plan "top customers" fits the question.'
    assert reply.steps[0].task == "List the 5 customers with the highest revenue."
    assert [item.value for item in reply.steps[1].sub_task_input] == ["@{outputs.top.table}", "5"]


def test_other_questions_match_no_stored_plan(templates: Templates) -> None:
    assert load_templates(None).match("anything") is None
    for question in ("Top customers by revenue", "Show the top 5 customers by revenue", ""):
        assert templates.match(question) is None


def test_placeholder_cannot_inject_a_reference(templates: Templates) -> None:
    reply = templates.match("Top @{outputs.top.answer} customers by revenue")
    assert reply is not None
    assert "@{" not in reply.steps[0].task


def test_placeholder_value_is_never_json(templates: Templates) -> None:
    disguised = '"\\u0040{outputs.top.answer}"'
    asked_and_read = (
        ("2.5", 2.5),
        ("1.10", "1.10"),
        ("[1]", "[1]"),
        ("null", "null"),
        ('"exact phrase"', '"exact phrase"'),
        ('"5"', '"5"'),
        (disguised, disguised),
        ('"[\\"@{outputs.top.answer}\\"]"', '"[\\"@ {outputs.top.answer}\\"]"'),
    )
    for asked, value in asked_and_read:
        reply = templates.match(f"Top {asked} customers by revenue")
        assert reply is not None
        assert read_value(reply.steps[1].sub_task_input[1].value) == value


def test_maps_and_lists_with_placeholders_keep_their_type(tmp_path: Path) -> None:
    path = tmp_path / "plans.yaml"
    path.write_text(
        "- name: a\n  questions: ['top {count}']\n  steps:\n  - agent: sql\n"
        "    sub_task_input:\n"
        '      map: {limit: "{count}", zip: "00123", rows: "@{outputs.top.table}", share: 1.5}\n'
        '      list: ["{count}", 2, null, ["at most {count}"]]\n'
        '      untouched: {zip: "00123"}\n',
        encoding="utf-8",
    )
    templates = load_templates(path)
    for asked in ("5", 'say "hi"\\', '", "zip": "1', "\\u0040{outputs.top.answer}"):
        reply = templates.match(f"top {asked}")
        assert reply is not None
        assert {each.name: read_value(each.value) for each in reply.steps[0].sub_task_input} == {
            "map": {"limit": asked, "zip": "00123", "rows": "@{outputs.top.table}", "share": 1.5},
            "list": [asked, 2, None, [f"at most {asked}"]],
            "untouched": {"zip": "00123"},
        }


def test_template_may_omit_the_fields_that_a_model_may_omit(tmp_path: Path) -> None:
    path = tmp_path / "plans.yaml"
    path.write_text(
        "- {name: a, questions: [q], agents: [sql], intent_reason: Because.}\n"
        "- {name: b, questions: [r], steps: [{agent: sql, sub_task_input: {n: 5}}]}\n",
        encoding="utf-8",
    )
    templates = load_templates(path)
    first, second = templates.match("q"), templates.match("r")
    assert first is not None
    assert second is not None
    assert (first.rationale, first.steps[0].agent) == ("Because.", "sql")
    assert "task" not in second.steps[0].model_fields_set
    assert second.steps[0].sub_task_input[0].value == "5"


def test_invalid_template_file_fails_the_start(tmp_path: Path) -> None:
    path = tmp_path / "plans.yaml"
    for text, hint in (
        ("a: [", "cannot be read as YAML"),
        ("- name: x", "0.questions"),
        ("- {name: x, questions: [q], steps: [{step_id: a}]}", "0.steps.0.agent"),
        ("- {name: x, questions: [q], unknown: 1}", "0.unknown"),
        ("- {name: x, questions: ['{a} and {a}']}", "placeholder twice"),
        ("- {name: x, questions: ['{a} {b} {c} {d}']}", "more than 3 placeholders"),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigurationError, match=hint) as caught:
            load_templates(path)
        assert "BOS_PLANNER_TEMPLATES_PATH" in caught.value.message
    with pytest.raises(ConfigurationError):
        load_templates(tmp_path / "absent.yaml")
