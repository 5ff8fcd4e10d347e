"""The evaluation set of the sample company is what its questions and its database say."""

from __future__ import annotations

import sys
from collections import Counter
from importlib.resources import files
from pathlib import Path

import yaml

from bos_cli.evaluation.questions import read_set

sys.path.append(str(Path(__file__).parents[1]))
import asyncpg
from evaluation_set import questions_of

SET = Path(str(files("bos_demo") / "evaluation.yaml"))
WRITTEN = yaml.safe_load(SET.read_text(encoding="utf-8"))


async def test_set_is_that_of_the_questions(company: asyncpg.Connection) -> None:
    assert yaml.safe_load(yaml.safe_dump(await questions_of(company))) == WRITTEN, (
        "Write it anew: python services/demo/evaluation_set.py "
        "services/demo/src/bos_demo/evaluation.yaml"
    )


def test_the_set_has_over_a_hundred_questions_of_eight_kinds_and_more() -> None:
    found = read_set(SET)

    kinds = Counter(each.kind for each in found.questions)
    assert kinds.total() > 100
    assert len(kinds) >= 8
    graded = [each for each in found.questions if each.expect.rows or each.expect.mentions]
    assert len(graded) > 80
