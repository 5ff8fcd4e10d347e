"""Named metrics: the same question gives the same number, or a refusal."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bos_testkit.scripted_model.replies import fixture

from .conftest import FAILED, SUCCEEDED, Harness, StartHarness, draft, fixtures

METADATA = """
tables:
  bills:
    fields:
      gross: {synonyms: [sales]}
metrics:
  revenue:
    formula: SUM(bills.net)
    filters: [bills.state <> 'void']
    time: bills.issued_on
    synonyms: [turnover, net sales]
  mood: {formula: SUM(bills.gross) per good day, enforced: false}
"""
RIGHT = "SELECT SUM(net) AS revenue FROM bills WHERE state <> 'void'"
WRONG = "SELECT SUM(gross) AS revenue FROM bills"
SENT_BACK = "in another way than"
WORDINGS = (
    "What is our revenue?",
    "Total revenue, please",
    "How much turnover did we make?",
    "Sum up the net sales of everything",
    "REVENUE in all",
    "Show me the revenues altogether",
    "net_sales overall",
    "Give the company's turnover",
    "Which revenue did all bills bring?",
    "I want to know how large turnovers were",
)
# What a model may write for these: half of them means another number.
DRAFTS = (
    RIGHT,
    WRONG,
    "SELECT SUM(net) AS revenue FROM bills",
    "SELECT ROUND(SUM(b.net), 2) AS turnover FROM bills AS b WHERE b.state != 'void'",
    "SELECT SUM(net) AS revenue FROM bills WHERE state = 'paid'",
    "SELECT COALESCE(SUM(CASE WHEN state <> 'void' THEN net ELSE 0 END), 0) AS r FROM bills",
    "SELECT SUM(gross - 1) AS net_sales FROM bills WHERE state <> 'void'",
    "WITH b AS (SELECT net AS n FROM bills WHERE state <> 'void') SELECT SUM(n) AS t FROM b",
    "SELECT SUM(net) AS r FROM bills WHERE state <> 'void' AND paid_on < '2026-02-01'",
    "SELECT AVG(net) * COUNT(net) AS turnover FROM bills WHERE state <> 'void'",
)

pytestmark = pytest.mark.requirement("D-10")


@pytest.fixture
def url(tmp_path: Path) -> str:
    path = tmp_path / "bills.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "CREATE TABLE bills (bill_id integer PRIMARY KEY, net integer NOT NULL,"
            " gross integer NOT NULL, state text NOT NULL, issued_on date, paid_on date);"
            "INSERT INTO bills VALUES (1, 100, 118, 'paid', '2026-01-02', '2026-01-09'),"
            " (2, 50, 59, 'open', '2026-02-03', NULL), (3, 7, 8, 'void', '2026-02-04', NULL);"
        )
    return f"sqlite:///{path}"


async def _start(
    start: StartHarness, url: str, tmp_path: Path, *more: Any, reply: Any = None, **kwargs: Any
) -> Harness:
    path = tmp_path / "metadata.yaml"
    path.write_text(METADATA)
    return await start(
        fixtures(*more, drafted=kwargs.pop("drafted", draft(RIGHT)), review=reply),
        url=url,
        tables=["bills"],
        metadata_path=path,
        **kwargs,
    )


async def test_a_metric_asked_in_ten_wordings_gives_one_number(
    start: StartHarness, url: str, tmp_path: Path
) -> None:
    drafts = [
        fixture(f"draft {n}", [f"### Task\n{wording}"], schema="QueryDraft", json=draft(sql))
        for n, (wording, sql) in enumerate(zip(WORDINGS, DRAFTS, strict=True))
    ]
    again = [SENT_BACK, "### Task", "### Metrics"]
    corrected = fixture("corrected", again, schema="QueryDraft", json=draft(RIGHT))
    harness = await _start(start, url, tmp_path, *drafts, corrected)

    numbers, corrections = [], 0
    for wording in WORDINGS:
        done = await harness.ask(wording)
        assert done.result.status == SUCCEEDED, wording
        ((value,),) = [row.values() for row in done.data["rows"]]
        numbers.append(value)
        assert done.data["metrics"] == [{"name": "revenue", "formula": "SUM(bills.net)"}]
        corrections += len(done.data["attempt_history"]) - 1

    assert numbers == [150] * len(WORDINGS)
    assert corrections == 6
    # What was sent back never ran.
    assert harness.queries() == len(WORDINGS)


async def test_the_model_gets_the_definition_then_the_difference(
    start: StartHarness, url: str, tmp_path: Path
) -> None:
    corrected = fixture("corrected", [SENT_BACK], schema="QueryDraft", json=draft(RIGHT))
    harness = await _start(start, url, tmp_path, corrected, drafted=draft(WRONG))

    done = await harness.ask("What is our turnover?")

    first, second = harness.prompts("QueryDraft")
    assert (
        "### Metrics\nrevenue = SUM(bills.net) (also: turnover, net sales);"
        " where bills.state <> 'void'; period by bills.issued_on" in first
    )
    assert "Compute exactly as defined: revenue" in first
    assert "its result does not hold SUM(bills.net)" in second
    assert [each["disagreement"] != "" for each in done.events("Named metrics")] == [True, False]


async def test_a_second_disagreement_is_refused_with_its_reason(
    start: StartHarness, url: str, tmp_path: Path
) -> None:
    harness = await _start(start, url, tmp_path, drafted=draft(WRONG))

    done = await harness.ask("What is our revenue?")

    assert done.result.status == FAILED
    assert done.result.error.type == "QueryError"
    assert "its result does not hold SUM(bills.net)" in done.result.error.message
    assert done.details["reason"] == "METRIC_DISAGREES"
    assert len(harness.prompts("QueryDraft")) == 2
    assert harness.queries() == 0


async def test_a_review_does_not_replace_a_metric(
    start: StartHarness, url: str, tmp_path: Path
) -> None:
    review = {"checks": "With tax.", "is_correct": False, "corrected_sql": WRONG}
    harness = await _start(start, url, tmp_path, reply=review, settings={"review": "always"})

    done = await harness.ask("What is our revenue?")

    assert done.data["rows"] == [{"revenue": 150}]
    (verdict,) = done.events("Review of the query")
    assert "its result does not hold SUM(bills.net)" in verdict["verdict"]


@pytest.mark.parametrize(
    "task", ["What are all sales?", "How is the mood?", "Sum of gross over all bills"]
)
async def test_questions_that_name_no_enforced_metric_are_free(
    start: StartHarness, url: str, tmp_path: Path, task: str
) -> None:
    harness = await _start(start, url, tmp_path, drafted=draft(WRONG))

    done = await harness.ask(task)

    assert done.data["rows"] == [{"revenue": 185}]
    assert done.data["metrics"] == []


async def test_the_question_counts_for_the_only_step_of_its_plan(
    start: StartHarness, url: str, tmp_path: Path
) -> None:
    harness = await _start(start, url, tmp_path, drafted=draft(WRONG))
    given = {"question": "What is our revenue?"}

    part = await harness.ask("Sum of gross over all bills", **given)
    only = await harness.ask("Sum of gross over all bills", is_final_answer=True, **given)

    assert (part.result.status, only.result.status) == (SUCCEEDED, FAILED)


async def test_small_models_are_held_to_metrics_too(
    start: StartHarness, url: str, tmp_path: Path
) -> None:
    chosen = fixture(
        "choice", [], schema="SchemaChoice", json={"tables": ["bills"], "is_clear": True}
    )
    wrong = fixture("wrong", [], schema="GeneratedSql", json={"sql": WRONG})
    right = fixture("right", [SENT_BACK], schema="GeneratedSql", json={"sql": RIGHT})
    harness = await _start(start, url, tmp_path, chosen, wrong, right, tier="small")

    done = await harness.ask("What is our revenue?")

    assert done.data["rows"] == [{"revenue": 150}]
