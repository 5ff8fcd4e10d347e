"""Clarifying questions: answered at a terminal, or by another command without one."""

import asyncio
import os
import pty
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bos.common.v1 import Clarification, ClarifyingQuestion
from bos.gateway.v1 import AskStreamResponse, RunStatus
from bos_cli.commands import clarifying
from bos_cli.commands.clarifying import chosen
from bos_testkit.scripted_gateway import KEY, RUN_ID, Gateway, Starter, response, story

pytestmark = pytest.mark.process

BOS = Path(sys.executable).with_name("bos")
QUESTION = "How is my value shifting?"
PROMPT = b"Enter to leave it open: "


@dataclass
class UnclearGateway(Gateway):
    """Asks back, until a question goes on from the run that asked."""

    async def AskStream(self, request: Any, context: Any) -> AsyncIterator[AskStreamResponse]:
        self.asked.append(request.request)
        outcome = response()
        if not request.request.continues_run_id:
            outcome = response(RunStatus.RUN_STATUS_CLARIFICATION_NEEDED)
            questions = outcome.clarification.questions
            questions.add(question="Which measure?", options=["balance", "turnover"])
            questions.add(question="Which days?")
        for event in story(outcome):
            yield AskStreamResponse(event=event)


@pytest.fixture
async def gateway(start: Starter) -> UnclearGateway:
    unclear = UnclearGateway()
    await start(unclear)
    return unclear


async def bos(gateway: Gateway, *arguments: str) -> tuple[int | None, str]:
    environment = {"PATH": os.environ["PATH"], "BOS_TARGET": gateway.address, "BOS_API_KEY": KEY}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        BOS, *arguments, env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=pipe
    )
    out, _ = await process.communicate()
    return process.returncode, out.decode()


async def at_a_terminal(gateway: Gateway, *typed: str) -> tuple[int, str]:
    """Ask at a terminal, and type one line whenever asked."""
    parent, child = pty.openpty()
    environment = {
        **{"PATH": os.environ["PATH"], "TERM": "xterm", "LANG": "C.UTF-8"},
        **{"BOS_TARGET": gateway.address, "BOS_API_KEY": KEY},
    }
    process = await asyncio.create_subprocess_exec(
        *(BOS, "ask", QUESTION, "--trace"),
        env=environment,
        stdin=child,
        stdout=child,
        stderr=child,
    )
    os.close(child)
    shown, waiting = b"", list(typed)
    while True:
        try:
            read = await asyncio.to_thread(os.read, parent, 4096)
        except OSError:  # how the end of a terminal looks
            break
        shown += read
        if waiting and shown.count(PROMPT) > len(typed) - len(waiting):
            os.write(parent, waiting.pop(0).encode() + b"\n")
    os.close(parent)
    return await process.wait(), shown.decode(errors="replace").replace("\r\n", "\n")


async def test_a_question_back_is_settled_at_the_terminal_and_the_answer_follows(
    gateway: UnclearGateway,
) -> None:
    code, shown = await at_a_terminal(gateway, "2", "UTC days")

    assert code == 0
    first, reply = gateway.asked
    assert (reply.continues_run_id, reply.trace) == (RUN_ID, True)
    assert reply.question == "Which measure? turnover\nWhich days? UTC days"
    assert reply.request_id not in ("", first.request_id)
    assert "1. balance\n" in shown
    assert "2. turnover\n" in shown
    assert "succeeded" in shown


async def test_a_question_cannot_command_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def typed() -> str:
        return "1"

    monkeypatch.setattr(clarifying, "line_from_terminal", typed)
    hostile = ClarifyingQuestion(question="Which\x1b[2J\x9b1mmeasure?", options=["a"])
    await clarifying.reply_to(Clarification(questions=[hostile]))
    shown = capsys.readouterr().out
    assert "Which[2J1mmeasure?" in shown
    assert "\x1b" not in shown


async def test_what_is_left_open_is_not_in_the_reply(gateway: UnclearGateway) -> None:
    code, _ = await at_a_terminal(gateway, "", "UTC")

    assert code == 0
    assert [each.question for each in gateway.asked] == [QUESTION, "Which days? UTC"]


async def test_nothing_settled_sends_nothing(gateway: UnclearGateway) -> None:
    code, shown = await at_a_terminal(gateway, "", "")

    assert code == 4
    assert len(gateway.asked) == 1
    assert f"bos ask --continue {RUN_ID}" in shown


async def test_without_a_terminal_the_run_ends_with_the_command_for_an_answer(
    gateway: UnclearGateway,
) -> None:
    code, out = await bos(gateway, "ask", QUESTION)

    assert code == 4
    assert f'To answer: bos ask --continue {RUN_ID} "your answers"' in out

    code, out = await bos(gateway, "ask", "--continue", RUN_ID, "turnover, UTC")
    assert code == 0
    assert (gateway.asked[1].continues_run_id, gateway.asked[1].question) == (
        RUN_ID,
        "turnover, UTC",
    )


async def test_json_is_the_outcome_alone(gateway: UnclearGateway) -> None:
    code, out = await bos(gateway, "ask", QUESTION, "--json")
    assert code == 4
    assert out.startswith("{")
    assert "To answer" not in out


async def test_a_plan_can_go_on_from_questions(gateway: UnclearGateway) -> None:
    code, _ = await bos(gateway, "plan", "--continue", RUN_ID, "turnover")
    assert code == 0
    assert gateway.asked[0].continues_run_id == RUN_ID


def test_a_number_stands_for_its_option_if_there_is_one() -> None:
    expected = {"1": "balance", " 2 ": "turnover", "3": "3", "0": "0", "the first": "the first"}
    assert {said: chosen(said, ["balance", "turnover"]) for said in expected} == expected
