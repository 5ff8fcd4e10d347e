"""The same actions over the Gmail API, against a double of its published interface."""

from contextlib import AsyncExitStack
from typing import Any

import pytest

from bos.agent.v1 import ConnectionInput
from bos_testkit.fixtures.agent_harness import SUCCEEDED

from .conftest import SUMMARY
from .gmail_double import GmailDouble, gmail_double, secret, settings
from .test_agent import NEWS, OFFER

WORDS = {"to": ["asha@supplier.example"], "subject": "Pumps", "body": "Dear Asha,\n\nAda"}


@pytest.fixture
async def gmail(stack: AsyncExitStack) -> GmailDouble:
    return await stack.enter_async_context(gmail_double())


@pytest.fixture
async def do(gmail: GmailDouble, start: Any) -> Any:
    mail = await start(SUMMARY, **settings(gmail))
    connected = ConnectionInput(kind="mail.gmail", fields={"address": "ada@gmail.example"})

    async def do(tool: str, inputs: Any = None, **more: Any) -> Any:
        given = {"tool": tool, "inputs": inputs, "connections": (connected,), "secret": secret()}
        return await mail.do("Do it", **{**given, **more})

    return do


@pytest.mark.requirement("I-03", "I-07", "I-08")
async def test_search_and_read(gmail: GmailDouble, do: Any) -> None:
    gmail.add("inbox", OFFER)
    gmail.add("inbox", NEWS)
    gmail.add("sent", OFFER)
    done = await do("search_messages", {"query": 'from:asha subject:"the pumps" after:2026-01-31'})
    assert done.result.status == SUCCEEDED, done.result.error
    assert gmail.queries == ['in:inbox from:"asha" subject:"the pumps" after:2026/01/31']
    (found,) = done.data["messages"]
    assert (found["subject"], done.data["count"]) == ("Offer for pumps", 1)
    read = await do("get_message_by_id", {"message_id": found["id"]})
    assert "12 pumps" in read.data["message"]["body"]
    assert read.result.tainted
    gone = await do("get_message_by_id", {"message_id": "ffffff"})
    assert gone.result.error.type == "MessageNotFound"


async def test_a_draft_is_saved_once(gmail: GmailDouble, do: Any) -> None:
    for _ in range(2):
        done = await do("draft_email", WORDS)
        assert done.result.status == SUCCEEDED, done.result.error
    assert len(gmail.drafts) == 1
    assert gmail.sent == []


async def approved(do: Any) -> Any:
    asked = await do("send_email", WORDS)
    return lambda: do("", approved=asked.action, tools=("send_email",))


async def test_a_message_is_sent_once_and_its_mark_removed(gmail: GmailDouble, do: Any) -> None:
    send = await approved(do)
    for _ in range(2):
        done = await send()
        assert done.result.status == SUCCEEDED, done.result.error
    assert len(gmail.sent) == 1
    assert gmail.drafts == {}
    assert "it was not sent again" in done.data["sent"]["confirmation"]


@pytest.mark.parametrize("shows_sent", [True, False])
async def test_lost_answer_sends_no_second(gmail: GmailDouble, do: Any, shows_sent: bool) -> None:
    gmail.lost, gmail.shows_sent = True, shows_sent
    send = await approved(do)
    first = await send()
    assert first.result.error.type == "OutcomeUnknown"
    gmail.lost = False
    second = await send()
    assert len(gmail.sent) == 1
    if shows_sent:
        assert second.result.status == SUCCEEDED
    else:  # as while Gmail has not indexed it yet
        assert second.result.error.type == "OutcomeUnknown"


async def test_unsent_draft_is_sent_by_the_next_attempt(gmail: GmailDouble, do: Any) -> None:
    gmail.fault = 400
    send = await approved(do)
    first = await send()
    assert first.result.error.type == "MailServerRefused"
    assert gmail.sent == []
    gmail.fault = 0
    assert (await send()).result.status == SUCCEEDED
    assert len(gmail.sent) == 1


@pytest.mark.requirement("I-05")
async def test_a_reply_joins_the_thread(gmail: GmailDouble, do: Any) -> None:
    original = gmail.add("inbox", OFFER, thread="thread-7")
    asked = await do("reply_to_message", {"message_id": original, "body": "We accept."})
    assert asked.arguments["in_reply_to"] == "<offer-1@supplier.example>"
    done = await do("", approved=asked.action, tools=("reply_to_message",))
    assert done.result.status == SUCCEEDED, done.result.error
    assert [m.thread for m in gmail.messages.values() if m.label == "sent"] == ["thread-7"]


async def test_a_revoked_token_is_a_clear_failure(gmail: GmailDouble, do: Any) -> None:
    gmail.refused = True
    done = await do("search_messages", {"query": ""})
    assert done.result.error.type == "MailboxSignInRefused"
    assert "refresh-token" not in str(done.result)


@pytest.mark.parametrize("token", ["", '{"client_id": 5}', "[" * 100_000])
async def test_an_invalid_token_is_a_clear_failure(do: Any, token: str) -> None:
    done = await do("search_messages", {"query": ""}, secret=token)
    assert done.result.error.type == "ConfigurationError"
