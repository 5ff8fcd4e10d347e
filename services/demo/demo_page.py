"""Writes the page of all demo questions from the files that hold them, so that it cannot drift.

::

    .venv/bin/python services/demo/demo_page.py docs/demo.md
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bos_demo.company import DEFAULT_TODAY
from bos_demo.dialogues import load_approved, load_clarified, load_followups
from bos_demo.questions import load_every_question

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bos_demo.questions import Question

_HEAD = """\
# What the demo answers

Written by `services/demo/demo_page.py` from the questions of `services/demo`; do not edit it.

After `make run`, each of the {count} questions below is asked by `.venv/bin/bos ask "…"`. The
company's today is {today}; where documents are needed, they are loaded in the background at the
first start, which also puts a price list into your workspace (`bos files list`). Model replies are
scripted, everything else is real: each answer is held against figures from other queries and
against the words of the passages it cites. To a question that is not here the demo names the
nearest five that are.

Steps run from left to right; those joined by + run at once.\
"""
_KINDS = {
    "sql": "One query",
    "uploads": "A file that you uploaded",
    "computation": "Calculations",
    "chains": "A query, then a calculation with its result",
    "parallel": "Several agents at once",
    "talk": "Without agents",
    "documents": "Documents, alone and with the database",
    "apis": "The company's API, alone and with the database",
    "web": "The web, alone, with documents and with calculations",
    "files": "Results as files",
    "charts": "Results as charts",
    "reports": "Reports of several queries, each drawn",
    "texts": "Texts of documents, pages and results, worked on",
    "mail": "The sample mailbox, alone and with the database",
}


def render() -> str:
    """The whole page."""
    singles = load_every_question()
    dialogues = [*_dialogues()]
    count = len(singles) + len(dialogues)
    lines = [_HEAD.format(count=count, today=DEFAULT_TODAY.isoformat())]
    for kind in dict.fromkeys(each.kind for each in singles):
        rows = [(each.question, _agents(each)) for each in singles if each.kind == kind]
        lines.append(_section(_KINDS.get(kind, kind.capitalize()), ("Question", "Agents"), rows))
    lines.append(_section("With a reply of yours", ("Question", "What happens"), dialogues))
    return "\n".join(lines)


def _dialogues() -> Iterator[tuple[str, str]]:
    for approved in load_approved():
        yield approved.question, f"{_agents(approved)}; the program waits for your approval"
    for clarified in load_clarified():
        yield clarified.question, "asks back: " + " ".join(each.question for each in clarified.asks)
    for followup in load_followups():
        yield (
            followup.question,
            f"after “{followup.after}”, with `--conversation` and the id that it printed",
        )


def _agents(question: Question) -> str:
    """Agents by stage; those of one stage run concurrently."""
    depth: dict[str, int] = {}
    for step in question.steps:
        depth[step.id] = 1 + max((depth[each] for each in question.depends_on(step)), default=-1)
    stages: dict[int, list[str]] = {}
    for step in question.steps:
        stages.setdefault(depth[step.id], []).append(step.agent)
    return " → ".join(" + ".join(stages[level]) for level in sorted(stages)) or "none"


def _section(title: str, head: tuple[str, str], rows: Iterable[tuple[str, str]]) -> str:
    table = [f"| {' | '.join(head)} |", "|---|---|"]
    table += [f"| {_cell(question)} | {_cell(what)} |" for question, what in rows]
    return "\n".join((f"\n## {title}\n", *table))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main(arguments: list[str]) -> None:
    """Write the page to the one path given."""
    if len(arguments) != 1:
        raise SystemExit("usage: demo_page.py PAGE")
    Path(arguments[0]).write_text(render() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
