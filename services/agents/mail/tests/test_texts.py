"""Pure parts with hostile input: search syntax, recipients, headers, bodies of others."""

import email
from datetime import UTC, date, datetime
from email import policy
from typing import Any

import pytest

from bos_agentkit import InputFiles
from bos_errors import InvalidArgument
from bos_mail import writing
from bos_mail.reading import html_text, letter, listed, parsed, seen
from bos_mail.search import gmail_query, imap_criteria, parse_query
from bos_mail.writing import GivenAttachment

TODAY = date(2026, 6, 15)
WHEN = datetime(2026, 6, 15, 12, 0, tzinfo=UTC)

pytestmark = pytest.mark.security


@pytest.mark.parametrize(
    ("query", "imap", "gmail"),
    [
        ("", ["ALL"], ""),
        ("from:x subject:y", ["FROM", "x", "SUBJECT", "y"], 'from:"x" subject:"y"'),
        ("-is:unread", ["NOT", "UNSEEN"], "-is:unread"),
        ("newer_than:7d", ["SINCE", date(2026, 6, 8)], "after:2026/06/08"),
        ('"a b" c', ["TEXT", "a b", "TEXT", "c"], '"a b" "c"'),
        ("from:a)(ALL", ["FROM", "a ALL"], 'from:"a)(ALL"'),
        ("x\r\nA1 LOGOUT", ["TEXT", "x", "TEXT", "A1", "TEXT", "LOGOUT"], '"x" "A1" "LOGOUT"'),
    ],
)
def test_a_query_becomes_terms_and_nothing_else(query: str, imap: list[Any], gmail: str) -> None:
    terms = parse_query(query, TODAY)
    assert imap_criteria(terms) == imap
    assert gmail_query(terms) == gmail


@pytest.mark.parametrize("query", ["before:2026-02-30", "newer_than:x", "x" * 501, "a " * 21])
def test_a_query_that_means_nothing_is_refused(query: str) -> None:
    with pytest.raises(InvalidArgument, match="query"):
        parse_query(query, TODAY)


@pytest.mark.parametrize(
    "text",
    [
        *("", "ada", "ada@localhost", "a b@example.com", "ada@127.0.0.1"),
        *("ada@example.com, eve@example.com", "ada@example.com <eve@example.com>"),
        *("ada@example.com\r\nBcc: eve@example.com", "friends: ada@example.com;"),
        *("a..b@example.com", "\u202eada@example.com", "ada@exa\u200bmple.com"),
        *("a" * 65 + "@example.com", "a@" + "b" * 300 + ".example"),
    ],
)
def test_what_is_not_one_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        writing.address(text, "to")
    assert writing.address('"Ada, L." <ada+x@Example.COM>', "to") == "ada+x@example.com"
    assert writing.address("ada@bücher.example", "to") == "ada@xn--bcher-kva.example"


def test_recipients_are_unique_limited_and_of_allowed_domains() -> None:
    def of(to: list[str], cc: list[str], domains: tuple[str, ...] = ()) -> Any:
        return writing.recipients(to, cc, [], most=2, domains=domains)

    assert of(["a@x.example", "A@x.example"], ["a@x.example"]) == (["a@x.example"], [], [])
    with pytest.raises(InvalidArgument, match="2 recipients"):
        of(["a@x.example", "b@x.example"], ["c@x.example"])
    with pytest.raises(InvalidArgument, match="at least one"):
        of([], ["a@x.example"])
    assert of(["a@x.example"], [], ("x.example",))
    for other in ("a@y.example", "a@x.example.y.example", "a@sub.x.example"):
        with pytest.raises(InvalidArgument, match="may not be sent"):
            of([other], [], ("x.example",))


@pytest.mark.parametrize("subject", ["a\r\nBcc: eve@x.example", "a\0b", "a\u202eb", "x" * 301])
def test_no_header_can_be_injected_by_a_subject(subject: str) -> None:
    with pytest.raises(InvalidArgument, match="subject"):
        writing.subject_line(subject)


@pytest.mark.parametrize("body", [" \n ", "a\x1bb", "a\u202eb", "x" * 101])
def test_a_body_holds_nothing_that_hides_or_turns(body: str) -> None:
    with pytest.raises(InvalidArgument, match="body"):
        writing.body_of(body, 100)
    assert writing.body_of("ä\tb\r\n.\r\nQUIT", 100) == "ä\tb\n.\nQUIT"


@pytest.mark.parametrize("name", ["../x", "a\\b", "a\u202ecsv.exe", " "])
def test_an_attachment_has_the_name_of_a_file(name: str) -> None:
    with pytest.raises(InvalidArgument, match="attachments"):
        writing.described([GivenAttachment(name=name, content="x")], InputFiles([]))


def test_attachments_are_bounded_together() -> None:
    half = GivenAttachment(name="a.txt", content="x" * 33_000)
    with pytest.raises(InvalidArgument, match="attachments"):
        writing.described([half, half], InputFiles([]))
    with pytest.raises(InvalidArgument, match="attachments"):
        writing.described([GivenAttachment(name="a.txt", content="x")] * 9, InputFiles([]))
    (made,) = writing.described([half], InputFiles([]))
    assert (made.size_bytes, len(made.sha256)) == (33_000, 64)


@pytest.mark.parametrize("ids", [["a@x"], ["<a@x>\r\nBcc: <b@x>"], ["<>"]])
def test_a_thread_consists_of_message_ids(ids: list[str]) -> None:
    with pytest.raises(InvalidArgument):
        writing.references(ids)


def test_one_key_has_one_message_id_and_bcc_is_left_out() -> None:
    key = writing.message_id("run/0/a/send_email-1", "ada@example.com")
    assert key == writing.message_id("run/0/a/send_email-1", "ada@example.com")
    assert key != writing.message_id("run/0/a/send_email-2", "ada@example.com")
    made = writing.built(
        id=key,
        sender="ada@example.com",
        to=["max@example.com"],
        cc=[],
        bcc=["eva@example.com"],
        subject="Grüße",
        body=".\nQUIT",
        attachments=[],
        when=WHEN,
    )
    assert made.recipients == ("max@example.com", "eva@example.com")
    assert b"eva@" not in made.content
    again = email.message_from_bytes(made.content, policy=policy.default)
    assert (again["Subject"], again["Message-ID"]) == ("Grüße", key)


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe\x00",
        b"From: \xff <a@\r\nDate: never\r\n\r\n\xff",
        b"Content-Type: text/plain; charset=klingon\r\n\r\nx",
        b"Content-Type: multipart/mixed\r\n\r\nno boundary",
        b"Content-Type: multipart/mixed; boundary=b\r\n\r\n" + b"--b\r\n" * 2000,
        b"Subject: =?utf-8?b?!!!?=\r\nTo: ,,,<<>>\r\nReferences: <a b> <c@d>\r\n\r\n",
        b"From: a\r\n" + b"X: y\r\n" * 5000 + b"\r\nz",
    ],
)
def test_a_damaged_message_is_read_as_far_as_it_goes(content: bytes) -> None:
    found = letter("id", parsed(content), 100)
    assert len(found.body) <= 100
    assert listed("id", parsed(content)).id == "id"


def test_headers_of_received_mail_are_one_visible_line() -> None:
    name = "=?utf-8?b?4oCuYWRtaW4=?="  # RIGHT-TO-LEFT OVERRIDE and "admin"
    content = f"From: {name} <eve@x.example>\r\nSubject: a\r\n b\r\n\r\nx".encode()
    found = listed("id", parsed(content))
    assert "\u202e" not in found.sender
    assert "admin" in found.sender
    assert found.subject == "a b"
    assert seen("a\r\n\u200bb\0c") == "a b c"


def test_of_html_nothing_is_read_that_is_not_shown() -> None:
    content = (
        "<html><head><title>t</title></head><body><p>Hello</p><script>x()</script>"
        "<style>p{}</style><template>tmp</template><div hidden>hid</div>"
        "<div style='display:none'>gone</div></body></html>"
    )
    assert html_text(content).split() == ["Hello"]
    assert html_text("") == ""
    deep = "<div>" * 5000 + "x"
    assert "x" in html_text(deep)


GREETING = "\u05e7\u05e0\u05e1 \u05d7\u05de\u05d9\u05e9\u05d4"


def _alternatives(plain: str, rich: str, end: str = "--B--\r\n") -> bytes:
    return (
        "Content-Type: multipart/alternative; boundary=B\r\n\r\n"
        f"--B\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n{plain}\r\n"
        f"--B\r\nContent-Type: text/html; charset=utf-8\r\n\r\n{rich}\r\n{end}"
    ).encode()


def _plain(body: bytes, *parameters: str, more: str = "") -> bytes:
    kind = "; ".join(("text/plain", *parameters))
    return f"Content-Type: {kind}\r\n{more}\r\n".encode() + body


BODIES = [
    (_plain("Größe".encode("cp1252"), "charset=us-ascii"), "Größe"),
    (_plain("Größe 5 €".encode()), "Größe 5 €"),
    (b"\r\n" + "Größe".encode("cp1252"), "Größe"),
    (_plain(GREETING.encode("cp1255"), "charset=iso-8859-8-i"), GREETING),
    (_plain("违约金百分之五".encode("gbk"), "charset=windows-936"), "违约金百分之五"),
    (_plain("Strafe fünf".encode(), "charset=unknown-8bit"), "Strafe fünf"),
    (_plain(b"five percent", "charset=x-unknown"), "five percent"),
    (_plain(b"plain ascii", "charset=ANSI_X3.4-1968"), "plain ascii"),
    (_plain("Größe".encode(), 'charset="utf-8; format=flowed"'), "Größe"),
    (_plain("\ufeffHello".encode(), "charset=utf-8"), "Hello"),
    (_plain("橋の契約".encode("iso2022_jp"), "charset=iso-2022-jp"), "橋の契約"),
    (_plain("Штраф пять процентов".encode("koi8_r")), "Штраф пять процентов"),
    (_plain("위약금".encode("cp949"), "charset=ks_c_5601-1987"), "위약금"),
    (
        _plain(b"UGVuYWx0eSBma!XZl", more="Content-Transfer-Encoding: base64\r\n"),
        "Penalty five",
    ),
    (_plain(b"One \r\nline.\r\n\r\nTwo.", "format=flowed"), "One line.\n\nTwo."),
    (_plain("一行 \r\n目".encode(), "charset=utf-8", "format=flowed", "delsp=yes"), "一行目"),
    (_plain(b"> cited \r\nown", "format=flowed"), "> cited own"),
    (b"Content-Type: text/plain\n\nunix lines\n", "unix lines"),
    (b"MIME-Version: 1.0\r\n", ""),
    (_alternatives(" ", "<p>It is <b>five</b> percent.</p>"), "It is five percent."),
    (_alternatives("Please use an HTML reader.", "<p>It is five.</p>"), "It is five."),
    (_alternatives("请使用支持 HTML 的程序。", "<p>违约金百分之五</p>"), "违约金百分之五"),
    (_alternatives("HTML is it, five.", "<p>It is five.</p>"), "HTML is it, five."),
    (_alternatives("Plain text.", "<p>Rich</p>", end=""), "Plain text."),
    (_alternatives("", "<table><tr><td>a</td><td>b</td></tr></table>c<br>d"), "a b\nc\nd"),
]


def test_body_is_what_a_mail_program_shows() -> None:
    read = [(letter("id", parsed(content), 500).body, text) for content, text in BODIES]
    assert [each for each in read if each[0] != each[1]] == []


SUBJECTS = [
    (b"=?unknown-8bit?Q?Gr=FC=DFe?= =?utf-8?B?w?=", "Grüße"),
    (b"=?utf-8?B?5ZCI5Q==?= =?utf-8?B?kIw=?=", "合同"),
    ("Grüße".encode("cp1252"), "Grüße"),
    (b"=?gb2312?B?os6hog==?= x", "⑽、 x"),
    (b"Re: =?x-nowhere?Q?=D8=F2=F0=E0=F4_=EF=FF=F2=FC?=", "Re: Штраф пять"),
    (b"a =?= b", "a =?= b"),
]


def test_subject_is_what_a_mail_program_shows() -> None:
    read = [
        (letter("i", parsed(b"Subject: " + raw + b"\r\n\r\n"), 9).subject, t) for raw, t in SUBJECTS
    ]
    assert [each for each in read if each[0] != each[1]] == []


def test_mails_and_files_within_a_mail_are_listed_and_mails_are_read() -> None:
    inner = "From: c@x.example\r\nSubject: =?utf-8?B?5ZCI5ZCM?=\r\n\r\nFünf\r\n".encode()
    head = b"Content-Type: multipart/mixed; boundary=B\r\n\r\n--B\r\n\r\nSee below.\r\n--B\r\n"
    found = letter(
        "id", parsed(head + b"Content-Type: message/rfc822\r\n\r\n" + inner + b"--B--\r\n"), 500
    )
    assert found.body == "See below.\n\nFrom: c@x.example\nSubject: 合同\n\nFünf"
    assert [each[:2] for each in found.attachments] == [("合同.eml", "message/rfc822")]
    found = letter("id", parsed(_plain(b"Hello\r\nbegin 644 a.txt\r\n#0V%T\r\n`\r\nend\r\n")), 500)
    assert (found.body, found.attachments) == ("Hello", (("a.txt", "application/octet-stream", 3),))


def test_text_whose_charset_is_guessed_is_noted() -> None:
    found = letter("id", parsed(_plain("Штраф пять процентов".encode("koi8_r"))), 500)
    assert "was read as KOI8-R" in found.notes[0]
    assert found.as_data()["notes"] == list(found.notes)
    assert "notes" not in letter("id", parsed(_plain(b"x")), 500).as_data()
