"""Questions that faults are tried with, and what the model says to them beside the demo."""

from __future__ import annotations

from typing import Final

from bos_demo.scripted.replies import composer_section
from bos_testkit.scripted_model.replies import fixture

from .chain_replies import DOCS
from .harness import plan_reply, planned, program_reply, query_replies

LIST_TABLES: Final = "List all tables in the database"
BOTH: Final = "Name the regions and add the numbers up"
SEARCHED: Final = "Look the flights up and add the numbers up"
_SUM = planned("sum", "computation", "add the numbers up")
REPLIES: Final = (
    plan_reply(BOTH, planned("regions", "sql", "name the regions"), _SUM),
    plan_reply(SEARCHED, planned("passages", "rag", DOCS.task), _SUM),
    *query_replies("name the regions", "SELECT region_name FROM regions", "regions"),
    program_reply("add the numbers up", "result = {'total': 4000 + 321}"),
    *(
        fixture(f"answer: {question}", [composer_section(question)], text="It is in the results.")
        for question in (BOTH, SEARCHED)
    ),
)
