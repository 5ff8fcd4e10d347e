"""The whole evaluation set, asked of a Bos that is started for it with the scripted model.

::

    .venv/bin/python tests/integration/evaluation/whole_set.py build/evaluation
"""

import asyncio
import json
import sys
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Any

from bos_chassis.telemetry import Telemetry
from bos_cli.evaluation.pages import page_of
from bos_cli.evaluation.questions import read_set
from bos_cli.evaluation.running import Graded, ask_all, report_of
from bos_client import BosClient
from bos_standalone.service import serve_all
from bos_standalone.settings import StandaloneSettings

_AT_ONCE = 2
_TIMEOUT_S = 120.0
_DOCUMENTS_WITHIN_S = 900.0


async def evaluate() -> dict[str, Any] | None:
    """Results of every question; None where the documents could not be read."""
    questions = read_set(Path(str(files("bos_demo") / "evaluation.yaml")))
    with tempfile.TemporaryDirectory(prefix="bos-evaluation-") as data:
        settings = StandaloneSettings.load(data_dir=Path(data), demo_documents=True)
        async with (
            serve_all(settings, Telemetry.for_tests("standalone")) as product,
            BosClient(product.target, api_key=product.api_key) as bos,
        ):
            if product.documents is None or not await product.documents.ready(_DOCUMENTS_WITHIN_S):
                print("the documents of the sample company were not read in time")
                return None
            results = await ask_all(
                bos, questions, at_once=_AT_ONCE, timeout_s=_TIMEOUT_S, done=_show
            )
    return report_of(questions, results)


def main(folder: Path) -> int:
    report = asyncio.run(evaluate())
    if report is None:
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    (folder / "results.html").write_text(page_of(report), encoding="utf-8")
    asked, passed = report["totals"]["questions"], report["totals"]["passed"]
    print(f"{passed} of {asked} passed; see {folder}")
    return 0 if passed == asked else 1


def _show(result: Graded) -> None:
    if result.passed:
        return
    print(f"FAILED {result.question.id}: {result.question.question}")
    for check in result.checks:
        if not check.passed:
            print(f"  {check.name}: {check.found}; expected: {check.expected}")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
