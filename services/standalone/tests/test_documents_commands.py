"""`bos documents` and `bos ask` beside `bos serve all`: from files on disk to a cited answer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from bos_demo.company import DEFAULT_TODAY
from bos_demo.questions import CitedPassage, Question, RagStep
from bos_demo.scripted.replies import composer_section, question_fixtures
from bos_testkit.scripted_model.replies import fixture
from bos_testkit.scripted_model.server import ScriptedModel

if TYPE_CHECKING:
    from .conftest import Folder

pytestmark = pytest.mark.e2e

PENALTY = "For each day of delay the supplier owes two percent of the price of the late goods."
FILES = {
    "agreement.md": f"# Agreement with Tamra Castings\n\n## 7. Late delivery\n\n{PENALTY}\n",
    "prices.csv": "item,price\nbearing,120\nflange,75\n",
    "minutes.html": "<html><body><h1>Minutes</h1><p>The canteen opens at noon.</p></body></html>",
}
QUESTION = Question(
    id="penalty",
    kind="documents",
    question="What does Tamra Castings owe for a late delivery?",
    rationale="An agreement says so.",
    steps=(
        RagStep(
            agent="rag",
            id="documents",
            task="Find what Tamra Castings owes for each day of delay",
            passages=(
                CitedPassage(document="agreement.md", section="7. Late delivery", quote=PENALTY),
            ),
            answer="It owes two percent of the price of the late goods per day [1].",
        ),
    ),
    facts=("two percent",),
)
# The composer's model repeats the agent's answer, and cites a source that there is not.
COMPOSED = fixture(
    "composed",
    [composer_section(QUESTION.question)],
    text="${found} Interest comes on top [9].",
    capture={"found": r"Agent: rag \| status: \w+\. Answer: ([^\n]+?) Error: "},
)


@pytest.mark.requirement("G-19", "K-10")
@pytest.mark.timeout(600)
async def test_answer_about_uploaded_files_cites_a_passage_of_one(
    folder: Folder,
) -> None:
    files = folder.path / "mine"
    files.mkdir()
    for name, text in FILES.items():
        (files / name).write_text(text)
    replies = [*question_fixtures(QUESTION, DEFAULT_TODAY)][:-1]
    async with ScriptedModel([*replies, COMPOSED]) as model:
        folder.environment |= {"OPENAI_BASE_URL": model.base_url, "BOS_MODEL": "scripted"}
        async with folder.serving():
            added = await folder.bos("documents", "add", "mine")
            listed = await folder.bos("documents", "list")
            searched = await folder.bos("documents", "search", "penalty for delay", "--limit", "1")
            shown = await folder.bos("ask", QUESTION.question)
            asked = await folder.bos("ask", QUESTION.question, "--json")
            document_id = _id_of("agreement.md", added.out)
            removed = await folder.bos("documents", "rm", "--yes", document_id)
            left = await folder.bos("documents", "search", "penalty for delay", "--json")

    assert (added.code, added.err) == (0, "")
    assert added.out.count("ready, 1 page") == 3
    assert all(name in listed.out for name in FILES)
    assert (
        "1. agreement.md, page 1, Agreement with Tamra Castings > 7. Late delivery" in searched.out
    )
    assert PENALTY in searched.out

    assert shown.code == 0, shown.err
    assert "per day [1]. Interest comes on top.\n" in shown.out
    assert "[9]" not in shown.out
    assert f"“{PENALTY}”" in shown.out
    response = json.loads(asked.out)
    (source,) = response["sources"]
    assert (source["title"], source["page"]) == ("agreement.md", 1)
    assert source["excerpt"] in (files / "agreement.md").read_text()

    assert (removed.code, removed.out) == (0, "Deleted agreement.md.\n")
    texts = [each["chunk"]["text"] for each in json.loads(left.out).get("passages", [])]
    assert texts
    assert not any(PENALTY in text for text in texts)


def _id_of(name: str, added: str) -> str:
    (line,) = (line for line in added.splitlines() if name in line)
    return line.split()[-1]
