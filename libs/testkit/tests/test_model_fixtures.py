from pathlib import Path

import pytest

from bos_testkit.scripted_model.replies import (
    AmbiguousPromptError,
    CaptureError,
    FixtureError,
    fixture,
    load_fixtures,
)

GOOD = """
- name: top customers, plan
  when:
    schema: PlannerReply
    contains: ["Which five customers"]
  capture: {total: 'total=([0-9.]+)'}
  reply:
    json: {steps: [{task: "share of ${total}"}], literal: "$${total}"}
- name: greeting
  when: {schema: null, contains: [hello]}
  reply: {text: "Good day."}
"""


def write(folder: Path, text: str, name: str = "fixtures.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_is_read_and_captures_fill_strings_inside_json(tmp_path: Path) -> None:
    book = load_fixtures([write(tmp_path, GOOD)])
    prompt = "Rules.\nwhich FIVE\n  customers? total=12.5"
    found = book.find(schema="PlannerReply", model="m", prompt=prompt)
    assert found.render(prompt) == {
        "steps": [{"task": "share of 12.5"}],
        "literal": "${total}",
    }


def test_a_folder_is_read_whole(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    write(tmp_path, GOOD.replace("name: ", "name: more ").replace("hello", "bye"), "b.yml")
    with pytest.raises(FixtureError, match="tie"):
        load_fixtures([tmp_path])
    write(tmp_path, "[]", "b.yml")
    assert len(load_fixtures([tmp_path])) == 2


def test_schema_model_and_excludes_decide_who_answers() -> None:
    book = load_fixtures(
        [
            fixture("text", ["sum"], text="t"),
            fixture("json", ["sum"], schema="A", json={}),
            fixture("json, one model", ["sum"], schema="A", model="big", json={}),
            fixture("not secret", ["total"], excludes=["secret"], text="t"),
        ]
    )

    def name(schema: str | None, model: str, prompt: str) -> str | None:
        found = book.find(schema=schema, model=model, prompt=prompt)
        return None if found is None else found.name

    assert name(None, "m", "a sum") == "text"
    assert name("A", "m", "a sum") == "json"
    assert name("A", "big", "a sum") == "json, one model"
    assert name("B", "m", "a sum") is None
    assert name(None, "m", "a total") == "not secret"
    assert name(None, "m", "a secret total") is None


def test_the_most_specific_fixture_answers() -> None:
    book = load_fixtures(
        [
            fixture("stand-in", [], text="t"),
            fixture("one", ["a"], text="t"),
            fixture("two", ["a", "b"], text="t"),
        ]
    )
    prompts = {"a b": "two", "a": "one", "z": "stand-in"}
    for prompt, expected in prompts.items():
        found = book.find(schema=None, model="m", prompt=prompt)
        assert found.name == expected


@pytest.mark.parametrize("other", [["customers"], ["top", "customers"]])
def test_fixtures_that_always_tie_are_refused_at_load(other: list[str]) -> None:
    one = fixture("one", ["top customers"], text="t")
    two = fixture("two", other, text="t")
    if len(other) == 1:
        with pytest.raises(FixtureError, match=r"'one' and 'two' tie"):
            load_fixtures([one, two])
    else:
        load_fixtures([one, two])


def test_a_prompt_that_fits_two_fixtures_names_both() -> None:
    book = load_fixtures([fixture("one", ["a"], text="t"), fixture("two", ["b"], text="t")])
    with pytest.raises(AmbiguousPromptError, match=r"'one' and 'two'"):
        book.find(schema=None, model="m", prompt="a b")


def test_a_capture_that_finds_nothing_names_itself() -> None:
    one = fixture("one", ["a"], text="${n}", capture={"n": "n=([0-9]+)"})
    with pytest.raises(CaptureError, match=r"'one': capture 'n'"):
        one.render("a")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("- name: x\n  reply: {text: t}", r"fixture 1 \(x\): when: Field required"),
        ("- name: x\n  when: {contains: [a]}\n  reply: {text: t}", "when.schema: Field required"),
        ("- name: x\n  when: {schema: null, contains: [' ']}\n  reply: {text: t}", "blank"),
        ("- name: x\n  when: {schema: null}\n  reply: {}", "exactly one of"),
        ("- name: x\n  when: {schema: null}\n  reply: {text: '${n}'}", "capture"),
        (
            "- name: x\n  when: {schema: null}\n  capture: {n: '('}\n  reply: {text: t}",
            "regular expression",
        ),
        (
            "- name: x\n  when: {schema: null}\n  reply: {text: t}\n  name: y",
            "'name' is given twice",
        ),
        (GOOD + GOOD, "two fixtures are named 'top customers, plan'"),
    ],
)
def test_a_wrong_file_says_what_is_wrong_and_where(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(FixtureError, match=problem):
        load_fixtures([write(tmp_path, text)])


def test_missing_file_and_empty_folder_are_errors(tmp_path: Path) -> None:
    with pytest.raises(FixtureError, match="cannot be read"):
        load_fixtures([tmp_path / "absent.yaml"])
    with pytest.raises(FixtureError, match="holds no"):
        load_fixtures([tmp_path])
