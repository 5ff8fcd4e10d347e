"""Sets of questions: read, asked, graded, shown, compared."""

import json
import sqlite3
from contextlib import closing
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bos.common.v1 import Value
from bos_cli.evaluation.benchmarks import read_benchmark
from bos_cli.evaluation.grading import grade, mentions, same_rows
from bos_cli.evaluation.outcomes import Outcome, cell_of
from bos_cli.evaluation.questions import Expected, read_set
from bos_cli.evaluation.running import ask_all
from bos_cli.main import main
from bos_errors import InvalidArgument, ResourceExhausted, Unavailable
from bos_testkit.scripted_gateway import Gateway, Starter, client

from .evaluation_sets import SET, Answering, answer, evaluate, gateway_of, set_file


async def test_a_set_is_asked_and_graded(start: Starter, tmp_path: Path) -> None:
    gateway = gateway_of()
    gateway.answers["Who leads?"].response.answer += " <script>alert(1)</script>"
    await start(gateway)
    results, page = tmp_path / "a.json", tmp_path / "a.html"

    code, shown = await evaluate(
        gateway,
        str(set_file(tmp_path)),
        *("--json-file", str(results), "--html-file", str(page), "--at-once", "1"),
        *("--model", "large"),
    )

    assert code == 0, shown
    assert {each.model for each in gateway.asked} == {"large"}
    assert "passed  leader  sql  3 calls, 99 tokens" in shown
    assert "3 of 3 passed; 6 model calls, 198 tokens, cost unknown" in shown
    assert gateway.cancelled == ["Send it"]
    assert gateway.most_at_once == 1
    assert (gateway.asked[0].backend, gateway.asked[1].backend) == ("shop", "")
    assert all(each.context["current_date"] == "2026-06-15" for each in gateway.asked)
    report = json.loads(results.read_text())
    assert report["totals"]["passed"] == 3
    statuses = [each["status"] for each in report["results"]]
    assert statuses == ["succeeded", "clarification_needed", "waiting_for_approval"]
    assert "leader: Who leads?" in page.read_text()
    assert "&lt;script&gt;" in page.read_text()
    assert "<script>" not in page.read_text()


async def test_each_broken_rule_is_shown(start: Starter, tmp_path: Path) -> None:
    text = (
        SET.replace("[Zeta, 7.5]", "[Zeta, 7.6]")
        .replace("agents: [sql]", "agents: [sql, web]")
        .replace("mentions: [Acme, 1000]", "mentions: [Zeta]")
        .replace("cites: [Customers]", "cites: [orders]")
        .replace("max_calls: 3", "max_calls: 2")
        .replace("max_tokens: 99", "max_tokens: 98")
    )
    gateway = gateway_of(**{"How much?": answer(), "Send it": answer()})
    await start(gateway)

    code, shown = await evaluate(gateway, str(set_file(tmp_path, text)), "--json")

    report = json.loads(shown)
    assert code == 1
    broken = [
        (each["id"], check["name"])
        for each in report["results"]
        for check in each["checks"]
        if not check["passed"]
    ]
    assert broken == [
        *(("leader", name) for name in ("agents", "rows", "mentions", "cites", "calls", "tokens")),
        ("vague", "status"),
        ("send", "status"),
    ]
    (rows,) = [c for c in report["results"][0]["checks"] if c["name"] == "rows"]
    assert rows["expected"] == "2 rows: Zeta, 7.6; Acme, 10"
    assert rows["found"] == "2 rows: Acme, 10; Zeta, 7.50"


async def test_two_evaluations_are_compared(start: Starter, tmp_path: Path) -> None:
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    gateway = gateway_of()
    await start(gateway)
    await evaluate(gateway, str(set_file(tmp_path)), "--json-file", str(first))
    gateway.answers["Who leads?"].response.metadata.usage.model_calls = 4
    await evaluate(gateway, str(set_file(tmp_path)), "--json-file", str(second))

    same, nothing = await evaluate(gateway, "--compare", str(first), str(first))
    worse, broken = await evaluate(gateway, "--compare", str(first), str(second), "--json")
    better, _ = await evaluate(gateway, "--compare", str(second), str(first))

    assert (same, better, worse) == (0, 0, 1)
    assert "nothing changed" in nothing
    found = json.loads(broken)
    assert [(c["question_id"], c["what"], c["verdict"]) for c in found["changes"]] == [
        ("leader", "passed", "broken"),
        ("leader", "calls", ""),
    ]
    assert found["changes"][1]["before"] == "3"
    assert found["changes"][1]["after"] == "4"
    assert found["totals"]["passed"] == {"before": "3", "after": "2"}


async def test_options_choose_questions(start: Starter, tmp_path: Path) -> None:
    gateway = gateway_of()
    await start(gateway)
    path = str(set_file(tmp_path))

    await evaluate(gateway, path, "--kind", "talk")
    await evaluate(gateway, path, "--id", "send")
    await evaluate(gateway, path, "--limit", "1")
    code, shown = await evaluate(gateway, path, "--kind", "none")

    assert [each.question for each in gateway.asked] == ["How much?", "Send it", "Who leads?"]
    assert (code, "No question of the set" in shown) == (2, True)


async def test_a_refused_question_fails_alone(start: Starter, tmp_path: Path) -> None:
    gateway = Answering(error=ResourceExhausted("Too many tokens today."))
    await start(gateway)

    async with client(gateway) as bos:
        results = await ask_all(
            bos, read_set(set_file(tmp_path)), at_once=3, timeout_s=60, done=lambda _: None
        )

    assert [each.outcome.status for each in results] == ["refused"] * 3
    assert not any(each.passed for each in results)


async def test_a_gateway_out_of_reach_ends_the_evaluation(tmp_path: Path) -> None:
    async with client(Gateway(address="127.0.0.1:1")) as bos:
        with pytest.raises(Unavailable):
            await ask_all(
                bos, read_set(set_file(tmp_path)), at_once=3, timeout_s=60, done=lambda _: None
            )


def test_rows_are_compared_in_any_order_and_by_type() -> None:
    expected: list[tuple[list[list[Any]], list[list[Any]], bool]] = [
        ([["a", 1], ["b", 2]], [["b", Decimal("2.0")], ["a", 1]], True),
        ([["a"], ["a"], ["b"]], [["a"], ["b"], ["b"]], False),
        ([[1]], [[True]], False),
        ([[None]], [[""]], False),
        ([[datetime(2026, 6, 15, 8)]], [["2026-06-15 08:00:00"]], True),  # noqa: DTZ001
        ([[date(2026, 6, 15)]], [["2026-06-15"]], True),
        ([[9007199254740993]], [[9007199254740992]], False),
        ([[1, 2]], [[2, 1]], False),
        ([], [[1]], False),
    ]
    for one, other, equal in expected:
        near = same_rows(one, other, tolerance=Decimal("0.0001"))
        assert same_rows(one, other) == same_rows(other, one) == near == equal, (one, other)


def test_order_and_tolerance_count_where_they_are_given() -> None:
    rows: list[list[Any]] = [["a", Decimal("1.004")], ["b", 2]]

    assert not same_rows(rows, [["b", 2], ["a", 1]])
    assert same_rows(rows, [["b", 2], ["a", 1]], tolerance=Decimal("0.005"))
    assert not same_rows(rows, [["b", 2], ["a", 1]], tolerance=Decimal("0.003"))
    assert same_rows(rows, rows, ordered=True)
    assert not same_rows(rows, rows[::-1], ordered=True)


def test_an_answer_mentions_numbers_by_value() -> None:
    stated = [175206, Decimal("-175206.00"), "ACME", 17520, "Bo"]
    text = "Acme brought Rs.1,75,206.00."
    assert [fact for fact in stated if mentions(text, fact)] == stated[:3]


def test_cells_keep_their_types() -> None:
    day = Value()
    day.date_value.year, day.date_value.month, day.date_value.day = 2026, 6, 15
    cells = [cell_of(each) for each in (Value(), Value(bool_value=True), day)]
    assert cells == [None, True, date(2026, 6, 15)]
    assert cell_of(Value(double_value=0.1)) == Decimal("0.1")
    assert cell_of(Value(bytes_value=b"\x00")) == "00"


def test_a_failed_run_passes_no_question() -> None:
    outcome = Outcome("failed", error="The model is away.")
    (check,) = grade(Expected(), outcome)
    assert (check.passed, check.found) == (False, "failed: The model is away.")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (SET.replace("asks: true", "askes: true"), "questions.1.expect.askes"),
        (SET.replace("id: vague", "id: leader"), "the id 'leader' is given twice"),
        (SET.replace("max_calls: 3", 'max_calls: "3"'), "questions.0.expect.max_calls"),
        ("name: x\nquestions: []", "questions"),
        ("a: &a [*a]", "a"),
        ("!!python/object:os.system {}", "no YAML"),
    ],
)
def test_a_wrong_set_is_refused_with_the_entry(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InvalidArgument) as failure:
        read_set(set_file(tmp_path, text))
    assert problem in failure.value.message


BIRD = {"question_id": 7, "db_id": "zoo", "question": "How many cats?", "evidence": "cats purr"}


def _benchmark(folder: Path, change: dict[str, str]) -> Path:
    place = folder / "dev_databases" / "zoo"
    place.mkdir(parents=True)
    with closing(sqlite3.connect(place / "zoo.sqlite")) as connection:
        connection.execute("CREATE TABLE animals (sound text)")
    path = folder / "dev.json"
    path.write_text(json.dumps([{**BIRD, "SQL": "SELECT COUNT(*) FROM animals", **change}]))
    return path


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"db_id": "../zoo"}, "entry 0: db_id '../zoo' is no name"),
        ({"db_id": "sea"}, "no SQLite file of the database sea"),
        ({"SQL": "DELETE FROM animals"}, "its query fails: attempt to write a readonly database"),
        ({"SQL": ""}, "SQL is missing"),
        (
            {"SQL": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT i FROM n"},
            "more than 10000 rows",
        ),
    ],
)
def test_wrong_benchmark_is_named(tmp_path: Path, change: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidArgument) as failure:
        read_benchmark(_benchmark(tmp_path, change))
    assert problem in failure.value.message


def test_a_set_or_a_comparison_is_wanted(tmp_path: Path) -> None:
    wrong = tmp_path / "a.json"
    wrong.write_text("{}")
    run = CliRunner().invoke

    assert run(main, ["eval"]).exit_code == 2
    assert run(main, ["eval", str(wrong), "--compare", str(wrong), str(wrong)]).exit_code == 2
    refused = run(main, ["eval", "--compare", str(wrong), str(wrong)])
    assert (refused.exit_code, "holds no evaluation" in refused.output) == (2, True)
