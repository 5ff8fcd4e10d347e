"""The sample mailbox by its servers: what a mail client sees, and who may send."""

import asyncio
import smtplib
from collections.abc import AsyncIterator, Callable
from datetime import date
from email import message_from_bytes, policy
from email.message import EmailMessage

import pytest
from imapclient import IMAPClient
from imapclient.exceptions import LoginError

from bos_chassis.concurrency.loop import new_event_loop
from bos_demo.company import DEFAULT_TODAY
from bos_demo.mailbox.letters import OWNER, Letter, load_letters, message_of, thread_before
from bos_demo.mailbox.servers import SampleMailbox, serve_mailbox

LETTERS = load_letters()


@pytest.fixture
async def mailbox() -> AsyncIterator[SampleMailbox]:
    async with serve_mailbox(DEFAULT_TODAY) as served:
        yield served


def content_of(letter: Letter) -> EmailMessage:
    content = message_of(letter, thread_before(letter, LETTERS), DEFAULT_TODAY)
    return message_from_bytes(content, policy=policy.default)


def signed_in(mailbox: SampleMailbox, password: str = "") -> IMAPClient:
    client = IMAPClient("127.0.0.1", mailbox.imap_port, ssl=False, timeout=20)
    try:
        client.login(mailbox.address, password or mailbox.password)
    except LoginError:
        client.shutdown()
        raise
    return client


def found(mailbox: SampleMailbox, folder: str, criteria: list[str | date]) -> list[str]:
    with signed_in(mailbox) as client:
        client.select_folder(folder, readonly=True)
        messages = client.fetch(client.search(criteria), ["BODY.PEEK[]"])
    parsed = (
        message_from_bytes(each[b"BODY[]"], policy=policy.default) for each in messages.values()
    )
    return [str(each["Subject"]) for each in parsed]


def send(mailbox: SampleMailbox, to: str, *, signs_in: bool = True) -> None:
    with smtplib.SMTP("127.0.0.1", mailbox.smtp_port, timeout=20) as client:
        if signs_in:
            client.login(mailbox.address, mailbox.password)
        client.sendmail(mailbox.address, [to], b"Subject: from a test\r\n\r\nhello\r\n")


async def test_folders_hold_their_mails(mailbox: SampleMailbox) -> None:
    for folder in ("INBOX", "Sent", "Drafts"):
        wanted = [each.subject for each in LETTERS if each.folder == folder]
        assert wanted
        assert await asyncio.to_thread(found, mailbox, folder, ["ALL"]) == wanted
    inbox = [each for each in LETTERS if each.folder == "INBOX"]
    unread = [each.subject for each in inbox if "seen" not in each.flags]
    assert await asyncio.to_thread(found, mailbox, "INBOX", ["UNSEEN"]) == unread


async def test_only_mail_to_the_owner_reaches_the_inbox(mailbox: SampleMailbox) -> None:
    before = await asyncio.to_thread(found, mailbox, "INBOX", ["ALL"])
    await asyncio.to_thread(send, mailbox, "other@example.com")
    assert await asyncio.to_thread(found, mailbox, "INBOX", ["ALL"]) == before
    await asyncio.to_thread(send, mailbox, OWNER.upper())
    assert await asyncio.to_thread(found, mailbox, "INBOX", ["ALL"]) == [*before, "from a test"]


async def test_unauthenticated_clients_neither_read_nor_send(mailbox: SampleMailbox) -> None:
    with pytest.raises(LoginError):
        await asyncio.to_thread(signed_in, mailbox, "wrong")
    assert mailbox.password not in repr(mailbox)
    with pytest.raises(smtplib.SMTPSenderRefused):
        await asyncio.to_thread(lambda: send(mailbox, OWNER, signs_in=False))


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, new_event_loop])
def test_serves_and_ends_on_either_loop(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """Services have asyncio's, the standalone has uvloop."""

    async def served() -> None:
        async with serve_mailbox(DEFAULT_TODAY) as mailbox:
            await asyncio.to_thread(send, mailbox, mailbox.address)
            assert "from a test" in await asyncio.to_thread(found, mailbox, "INBOX", ["ALL"])
            # One who stays connected does not hold up the end.
            _, writer = await asyncio.open_connection("127.0.0.1", mailbox.smtp_port)
        writer.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(asyncio.wait_for(served(), 120))


def test_mails_are_messages_with_their_threads() -> None:
    for letter in LETTERS:
        message = content_of(letter)
        assert message["Subject"] == letter.subject
        assert OWNER in f"{message['From']} {message['To']}", letter.id
        assert message["Message-ID"] == letter.message_id
        assert ("In-Reply-To" in message) == bool(letter.answers), letter.id
        attached = len(list(message.iter_attachments()))
        assert attached == (letter.attachment is not None), letter.id


def test_thread_names_all_mails_before_it_the_oldest_first() -> None:
    (last,) = (each for each in LETTERS if each.id == "butibori-reminder")
    assert content_of(last)["References"] == (
        "<butibori-open-points@nilgiriflow.example> <butibori-first-reply@nilgiriflow.example>"
    )
