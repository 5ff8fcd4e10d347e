"""Files of earlier steps as attachments: named, shown by digest, sent byte for byte."""

import email
import hashlib
from collections.abc import Sequence
from email import policy
from typing import Any

import pytest

from bos.agent.v1 import InputFile
from bos_agentkit import InputFiles
from bos_mail import writing
from bos_mail.writing import GivenAttachment
from bos_testkit.fixtures.agent_harness import AWAITING, FAILED, SUCCEEDED
from bos_testkit.scripted_model.replies import fixture

from .conftest import SUMMARY

REPORT = b"%PDF-1.7 " + bytes(range(256)) * 20
ROWS = "region,umsatz\nNord,1\nSüd,2\n".encode()


def file(name: str, content: bytes, kind: str = "application/pdf", step: str = "draw") -> InputFile:
    return InputFile(
        name=name,
        media_type=kind,
        digest=f"sha256:{hashlib.sha256(content).hexdigest()}",
        size_bytes=len(content),
        step_id=step,
        content=content,
    )


FILES = [file("report.pdf", REPORT), file("rows.csv", ROWS, "text/csv", "query")]


async def proposed(mail: Any, attachments: Any, files: Sequence[InputFile] = FILES) -> Any:
    given = {"to": ["asha@supplier.example"], "subject": "Trend", "body": "See the report."}
    inputs = given if attachments is None else {**given, "attachments": attachments}
    return await mail.do("Mail the report", tool="send_email", inputs=inputs, files=files)


def sent_files(mail: Any) -> list[tuple[str, str, bytes]]:
    """Name, type and bytes of what the only mail that was sent has attached."""
    (envelope,) = mail.smtp.taken
    message = email.message_from_bytes(envelope.content, policy=policy.default)
    return [
        (part.get_filename(), part.get_content_type(), part.get_payload(decode=True))
        for part in message.iter_attachments()
    ]


DIGEST = FILES[0].digest


@pytest.mark.parametrize(
    "attachments",
    [
        ["draw/report.pdf", ["report.pdf"]],
        [{"name": "report.pdf", "media_type": "x/y", "size_bytes": 7, "digest": DIGEST}],
    ],
)
async def test_file_is_shown_by_digest_and_sent_whole(mail: Any, attachments: Any) -> None:
    asked = await proposed(mail, attachments)
    assert asked.result.status == AWAITING, asked.result.error
    (shown,) = asked.arguments["attachments"]
    assert (shown["name"], shown["media_type"]) == ("report.pdf", "application/pdf")
    assert (shown["size_bytes"], shown["step"], shown["content"]) == (len(REPORT), "draw", "")
    assert shown["sha256"] == DIGEST.removeprefix("sha256:")
    done = await mail.do("Mail", approved=asked.action, tools=("send_email",), files=FILES)
    assert done.result.status == SUCCEEDED, done.result.error
    assert sent_files(mail) == [("report.pdf", "application/pdf", REPORT)]
    (named,) = done.data["sent"]["attachments"]
    assert (named["name"], named["sha256"]) == ("report.pdf", DIGEST.removeprefix("sha256:"))


async def test_files_of_steps_and_texts_of_the_plan_go_together(mail: Any) -> None:
    asked = await proposed(mail, ["rows.csv", {"name": "note.txt", "content": "Größe"}])
    done = await mail.do("Mail", approved=asked.action, tools=("send_email",), files=FILES)
    assert done.result.status == SUCCEEDED, done.result.error
    assert sent_files(mail) == [
        ("rows.csv", "text/csv", ROWS),
        ("note.txt", "text/plain", "Größe".encode()),
    ]


@pytest.mark.parametrize(
    ("attachments", "said"),
    [
        ("chart.png", "there are report.pdf (step draw), rows.csv (step query)"),
        ([{"name": "report.pdf", "digest": "sha256:" + "0" * 64}], "there are report.pdf"),
        ([{"content": "x"}], "must be a list"),
    ],
)
async def test_error_lists_the_files_there_are(start: Any, attachments: Any, said: str) -> None:
    mail = await start()
    asked = await proposed(mail, attachments)
    assert asked.result.status == FAILED
    assert said in asked.result.error.message


async def test_of_two_different_files_with_one_name_the_step_decides(mail: Any) -> None:
    files = [*FILES, file("report.pdf", b"another", step="again")]
    unclear = await proposed(mail, "report.pdf", files)
    assert "name the step, of draw, again" in unclear.result.error.message
    clear = await proposed(mail, "again/report.pdf", files)
    assert clear.arguments["attachments"][0]["size_bytes"] == len(b"another")
    large = file("report.pdf", b"")
    large.problem = "It is too large."
    for given, said in (([large], "report.pdf cannot be used: It is too large."), ([], "no files")):
        refused = await proposed(mail, "report.pdf", given)
        assert said in refused.result.error.message


@pytest.mark.security
@pytest.mark.parametrize("change", ["other content", "content under the old digest"])
async def test_content_other_than_the_one_shown_is_not_sent(mail: Any, change: str) -> None:
    asked = await proposed(mail, "report.pdf")
    files = [file("report.pdf", b"other")]
    if change == "content under the old digest":
        files[0].digest = DIGEST
    done = await mail.do("Mail", approved=asked.action, tools=("send_email",), files=files)
    assert done.result.status == FAILED
    assert mail.smtp.taken == []


async def test_the_model_chooses_files_that_the_plan_leaves_open(start: Any) -> None:
    words = fixture(
        "files",
        ["### Files of earlier steps", f"- draw/report.pdf: application/pdf, {len(REPORT)} bytes"],
        schema="MailWithFiles",
        json={"subject": "X", "body": "Here it is.", "attachments": ["draw/report.pdf"]},
    )
    mail = await start(words, SUMMARY)
    asked = await proposed(mail, None)
    assert asked.result.status == AWAITING, asked.result.error
    assert [each["name"] for each in asked.arguments["attachments"]] == ["report.pdf"]
    assert (asked.arguments["subject"], asked.arguments["body"]) == ("Trend", "See the report.")


async def test_without_files_the_model_is_asked_for_words_alone(mail: Any) -> None:
    given = {"to": ["asha@supplier.example"]}
    asked = await mail.do("Write", tool="send_email", inputs=given)
    assert (asked.result.status, asked.arguments["attachments"]) == (AWAITING, [])
    assert [each.schema for each in mail.model.requests] == ["MailText"]


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        ("image/png", "image/png"),
        ("message/rfc822", "application/octet-stream"),
        ("text/html\r\nBcc: eve@example.com", "application/octet-stream"),
    ],
)
def test_media_types_are_those_of_one_part(declared: str, kind: str) -> None:
    files = InputFiles([file("a.bin", b"\xff\x00", declared)])
    (shown,) = writing.described([GivenAttachment(name="a.bin")], files)
    (part,) = writing.parts([shown], files)
    assert (shown.media_type, part.media_type, part.content) == (kind, kind, b"\xff\x00")
