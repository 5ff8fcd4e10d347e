"""Named metrics: the same question gives the same number, or a refusal."""

from pathlib import Path
from typing import Any

import pytest

from bos_testkit.scripted_model.replies import fixture

from .conftest import FAILED, SUCCEEDED, Harness, StartHarness, draft, fixtures, sqlite_database

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
# Wordings, and what a model may write for them: half of it means another number.
DRAFTS = {
    "What is our revenue?": RIGHT,
    "Sum up the net sales of everything": WRONG,
    "I want to know how large turnovers were": (
        "SELECT ROUND(SUM(b.net), 2) AS turnover FROM bills AS b WHERE b.state != 'void'"
    ),
    "net_sales overall": "SELECT SUM(net) AS revenue FROM bills WHERE state = 'paid'",
}

pytestmark = pytest.mark.requirement("D-10")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return sqlite_database(
        tmp_path,
        "CREATE TABLE bills (bill_id integer PRIMARY KEY, net integer NOT NULL,"
        " gross integer NOT NULL, state text NOT NULL, issued_on date, paid_on date);"
        "INSERT INTO bills VALUES (1, 100, 118, 'paid', '2026-01-02', '2026-01-09'),"
        " (2, 50, 59, 'open', '2026-02-03', NULL), (3, 7, 8, 'void', '2026-02-04', NULL);",
    )


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


async def test_all_wordings_give_one_number(start: StartHarness, url: str, tmp_path: Path) -> None:
    drafts = [
        fixture(f"draft {n}", [f"### Task\n{wording}"], schema="QueryDraft", json=draft(sql))
        for n, (wording, sql) in enumerate(DRAFTS.items())
    ]
    again = [SENT_BACK, "### Task", "### Metrics"]
    corrected = fixture("corrected", again, schema="QueryDraft", json=draft(RIGHT))
    harness = await _start(start, url, tmp_path, *drafts, corrected)

    numbers, corrections = [], 0
    for wording in DRAFTS:
        done = await harness.ask(wording)
        assert done.result.status == SUCCEEDED, wording
        ((value,),) = [row.values() for row in done.data["rows"]]
        numbers.append(value)
        assert done.data["metrics"] == [{"name": "revenue", "formula": "SUM(bills.net)"}]
        corrections += len(done.data["attempt_history"]) - 1

    assert numbers == [150] * len(DRAFTS)
    assert corrections == 2
    # What was sent back never ran.
    assert harness.queries() == len(DRAFTS)


async def test_the_model_gets_the_definition(start: StartHarness, url: str, tmp_path: Path) -> None:
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


async def test_a_second_disagreement_is_refused(
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


async def test_reviews_do_not_replace_metrics(
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


async def test_the_only_step_of_a_plan_is_held_to_its_question(
    start: StartHarness, url: str, tmp_path: Path
) -> None:
    harness = await _start(start, url, tmp_path, drafted=draft(WRONG))
    given = {"question": "What is our revenue?"}

    part = await harness.ask("Sum of gross over all bills", **given)
    only = await harness.ask("Sum of gross over all bills", is_final_answer=True, **given)

    assert (part.result.status, only.result.status) == (SUCCEEDED, FAILED)
