"""Every client says the same of an outcome: the table of ``docs/reference/outcomes.md``."""

from pathlib import Path

import pytest

from bos.common.v1 import Outcome
from bos.gateway.v1 import OrchestratorResponse, Run, RunFinishedEvent, RunStatus
from bos_cli.render.parts import end_style
from bos_cli.session import exit_code
from bos_client.text import run_end_text
from bos_conversation.mcp.results import ended
from bos_plainjson import plain_json
from bos_protocols.a2a.tasks import status_of, task_of

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/outcomes.md"
HEAD = "| Outcome | `bos` | Exit code |"


def table() -> list[list[str]]:
    """The cells of the table's rows."""
    lines = PAGE.read_text(encoding="utf-8").split(HEAD)[1].splitlines()[2:]
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]
    return rows[: rows.index([""])]


def run_of(outcome: str, status: str) -> Run:
    response = OrchestratorResponse(
        run_id="r",
        status=RunStatus.Value(f"RUN_STATUS_{status.upper()}"),
        outcome=Outcome.Value(f"OUTCOME_{outcome}"),
        answer="Well.",
    )
    return Run(run_id="r", status=response.status, response=response)


@pytest.mark.requirement("Q-08", "Q-09")
def test_every_client_says_the_same_of_an_outcome() -> None:
    found = []
    for outcome, said, _, console, _, status in table():
        run = run_of(outcome, status)
        response = run.response
        words = run_end_text(response)
        style = end_style(response)
        shown = f"{style}, `{words}" if outcome != "ANSWERED" else f"{style}, the status"
        task = task_of(run, None, "")
        assert plain_json(RunFinishedEvent(response=response))["response"]["outcome"] == (
            f"OUTCOME_{outcome}"
        )
        assert task.metadata["outcome"] == outcome
        content = ended(run).structured_content
        assert content is not None
        assert (content["outcome"], ended(run).is_error) == (outcome.lower(), False)
        state = status_of(run, None).state
        name = type(task.status).DESCRIPTOR.fields_by_name["state"].enum_type.values_by_number
        a2a = name[state].name.removeprefix("TASK_STATE_")
        found.append([outcome, shown, str(exit_code(response)), console, a2a, content["status"]])
        assert said.startswith(style), outcome
    assert found == table()
    names = {row[0] for row in found}
    assert names == {name.removeprefix("OUTCOME_") for name in Outcome.keys()[1:]}
    failed = OrchestratorResponse(status=RunStatus.RUN_STATUS_FAILED)
    assert (exit_code(failed), end_style(failed), run_end_text(failed)) == (1, "red", "failed")
