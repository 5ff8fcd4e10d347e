"""E-mails."""

from email.message import EmailMessage


def mail(text: str, *, html: str = "", attached: dict[str, bytes] | None = None) -> bytes:
    """A mail from Ann to Bob."""
    message = EmailMessage()
    message["From"] = "Ann <ann@example.com>"
    message["To"] = "bob@example.com"
    message["Subject"] = "Late delivery"
    message["Date"] = "Fri, 14 Mar 2025 10:00:00 +0000"
    message.set_content(text)
    if html:
        message.add_alternative(html, subtype="html")
    for name, content in (attached or {}).items():
        message.add_attachment(content, "application", "octet-stream", filename=name)
    return message.as_bytes()


def deep_mail(depth: int) -> bytes:
    """Multiparts in multiparts."""
    head = b"From: a@example.com\nSubject: deep\nMIME-Version: 1.0\n"
    parts = [
        b'Content-Type: multipart/mixed; boundary="b%d"\n\n--b%d\n' % (n, n) for n in range(depth)
    ]
    return head + b"".join(parts) + b"Content-Type: text/plain\n\ndeep text\n"
