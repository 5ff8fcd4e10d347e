"""Clarifying questions: answered at a terminal, or by another command without one."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from bos.common.v1 import Clarification, ClarifyingQuestion
from bos.gateway.v1 import AskStreamResponse, RunStatus
from bos_cli.commands import clarifying
from bos_cli.commands.clarifying import chosen
from bos_testkit.scripted_gateway import RUN_ID, Gateway, Starter, response, story

from .commands import Finished, at_terminal, bos

QUESTION = "How is my value shifting?"
PROMPT = "Enter to leave it open: "


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


def typing(*lines: str) -> Callable[[str], str | None]:
    """Types one line whenever it is asked."""
    waiting = list(lines)

    def answer(shown: str) -> str | None:
        asked = shown.count(PROMPT) > len(lines) - len(waiting)
        return waiting.pop(0) if waiting and asked else None

    return answer


async def settled(gateway: Gateway, *lines: str) -> Finished:
    return await at_terminal(gateway, "ask", QUESTION, "--trace", answer=typing(*lines))


@pytest.mark.process
async def test_question_back_is_settled_at_the_terminal(gateway: UnclearGateway) -> None:
    done = await settled(gateway, "2", "UTC days")

    assert done.code == 0
    first, reply = gateway.asked
    assert (reply.continues_run_id, reply.trace) == (RUN_ID, True)
    assert reply.question == "Which measure? turnover\nWhich days? UTC days"
    assert reply.request_id not in ("", first.request_id)
    for part in ("1. balance\n", "2. turnover\n", "succeeded"):
        assert part in done.out


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


@pytest.mark.process
async def test_what_is_left_open_is_not_in_the_reply(gateway: UnclearGateway) -> None:
    assert (await settled(gateway, "", "UTC")).code == 0
    assert [each.question for each in gateway.asked] == [QUESTION, "Which days? UTC"]


@pytest.mark.process
async def test_nothing_settled_sends_nothing(gateway: UnclearGateway) -> None:
    done = await settled(gateway, "", "")
    assert done.code == 4
    assert len(gateway.asked) == 1
    assert f"bos ask --continue {RUN_ID}" in done.out


async def test_without_a_terminal_the_answering_command_is_shown(gateway: UnclearGateway) -> None:
    done = await bos(gateway, "ask", QUESTION)
    assert done.code == 4
    assert f'To answer: bos ask --continue {RUN_ID} "your answers"' in done.out
    done = await bos(gateway, "ask", QUESTION, "--json")
    assert done.code == 4
    assert done.out.startswith("{")
    assert "To answer" not in done.out

    gateway.asked.clear()
    for command in ("ask", "plan"):
        done = await bos(gateway, command, "--continue", RUN_ID, "turnover, UTC")
        assert done.code == 0
    assert [(each.continues_run_id, each.question) for each in gateway.asked] == [
        (RUN_ID, "turnover, UTC")
    ] * 2


def test_a_number_stands_for_its_option_if_there_is_one() -> None:
    expected = {"1": "balance", " 2 ": "turnover", "3": "3", "0": "0", "the first": "the first"}
    assert {said: chosen(said, ["balance", "turnover"]) for said in expected} == expected
