"""Sets of questions for the tests of ``bos eval``, and a gateway that answers them."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bos.common.v1 import Column, Row, Table, Value
from bos.gateway.v1 import GetRunResponse, OrchestratorResponse, Run, RunStatus, SubmitRunResponse
from bos_testkit.scripted_gateway import Gateway

from .commands import invoke

SET = """
name: Shop
context: {current_date: "2026-06-15"}
questions:
  - id: leader
    kind: sql
    question: Who leads?
    backend: shop
    expect:
      agents: [sql]
      rows: [[Zeta, 7.5], [Acme, 10]]
      mentions: [Acme, 1000]
      cites: [Customers]
      max_calls: 3
      max_tokens: 99
  - {id: vague, kind: talk, question: "How much?", expect: {asks: true}}
  - {id: send, kind: mail, question: Send it, expect: {approval: true}}
"""
TABLE = Table(
    columns=[Column(name="customer"), Column(name="revenue")],
    rows=[
        Row(values=[Value(string_value="Acme"), Value(int64_value=10)]),
        Row(values=[Value(string_value="Zeta"), Value(decimal_value="7.50")]),
    ],
)


def answer(status: RunStatus = RunStatus.RUN_STATUS_SUCCEEDED, **more: Any) -> Run:
    """A run that answers, by default with success."""
    response = OrchestratorResponse(status=status, answer="Acme leads with 1,000.00 [1].", **more)
    response.sources.add(title="customers")
    response.metadata.agents.append("sql")
    response.metadata.usage.model_calls = 3
    response.metadata.usage.input_tokens = 80
    response.metadata.usage.output_tokens = 19
    return Run(run_id="r", status=status, response=response)


@dataclass
class Answering(Gateway):
    """A gateway whose runs end, or wait, as the question says."""

    answers: dict[str, Run] = field(default_factory=dict)
    cancelled: list[str] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0

    async def SubmitRun(self, request: Any, context: Any) -> SubmitRunResponse:
        self.asked.append(request.request)
        if self.error is not None:
            raise self.error
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        run = Run(run_id=request.request.question, status=RunStatus.RUN_STATUS_ACCEPTED)
        return SubmitRunResponse(run=run)

    async def GetRun(self, request: Any, context: Any) -> GetRunResponse:
        run = Run()
        run.CopyFrom(self.answers[request.run_id])
        run.run_id = request.run_id
        self.at_once -= 1
        return GetRunResponse(run=run)

    async def CancelRun(self, request: Any, context: Any) -> Any:
        self.cancelled.append(request.run_id)
        return await super().CancelRun(request, context)


def gateway_of(**more: Run) -> Answering:
    return Answering(
        answers={
            "Who leads?": answer(data=TABLE),
            "How much?": answer(RunStatus.RUN_STATUS_CLARIFICATION_NEEDED),
            "Send it": Run(status=RunStatus.RUN_STATUS_WAITING_FOR_APPROVAL),
            **more,
        }
    )


def set_file(folder: Path, text: str = SET) -> Path:
    path = folder / "set.yaml"
    path.write_text(text, encoding="utf-8")
    return path


async def evaluate(gateway: Gateway, *arguments: str) -> tuple[int, str]:
    done = await invoke(gateway.address, "eval", *arguments)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output
