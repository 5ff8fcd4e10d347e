"""TLS from the start and by STARTTLS, to servers that prove who they are, and to no others."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from bos.agent.v1 import AgentExecutionStatus
from bos_errors import ConfigurationError
from bos_mail.settings import MailSettings
from bos_testkit.certificates import Authority
from bos_testkit.scripted_model.replies import fixture

from .mail_servers import (
    Certificate,
    ImapServer,
    behind_tls,
    connection,
    smtp_server,
    starttls_imap_server,
)

SUCCEEDED = AgentExecutionStatus.AGENT_EXECUTION_STATUS_SUCCEEDED
WORDS = {"to": ["max@example.com"], "subject": "Hello", "body": "Dear Max,\n\nAda"}
SUMMARY = fixture("summary", ["### Action"], schema="MailSummary", json={"result": "Done so."})

pytestmark = pytest.mark.security


@pytest.fixture
def certificate(tmp_path: Path) -> Certificate:
    issued = Authority(tmp_path / "trusted").issue("mail")
    assert issued.cert_file is not None
    assert issued.key_file is not None
    return issued.cert_file, issued.key_file


async def sent(mail: Any, given: Any) -> Any:
    """The outcome of a message that was proposed and approved."""
    more = {"connections": (given,), "tools": ("send_email",)}
    asked = await mail.do("Greet", tool="send_email", inputs=WORDS, **more)
    return await mail.do("Greet", approved=asked.action, **more)


@pytest.fixture
async def servers(
    security: str, certificate: Certificate, stack: AsyncExitStack, imap: ImapServer
) -> tuple[ImapServer, Any, dict[str, str]]:
    """Servers that take passwords over TLS alone, and the fields of a connection to them."""
    if security == "starttls":
        imap = await stack.enter_async_context(starttls_imap_server(certificate))
        smtp = await stack.enter_async_context(smtp_server(starttls=certificate))
        ports = imap.port, smtp.port
    else:
        smtp = await stack.enter_async_context(smtp_server())
        ports = (
            await stack.enter_async_context(behind_tls(imap.port, certificate)),
            await stack.enter_async_context(behind_tls(smtp.port, certificate)),
        )
    fields = {"imap_port": str(ports[0]), "smtp_port": str(ports[1])}
    return imap, smtp, {**fields, "imap_security": security, "smtp_security": security}


@pytest.mark.parametrize("security", ["implicit", "starttls"])
async def test_a_message_is_sent_over_tls(
    servers: tuple[ImapServer, Any, dict[str, str]], start: Any, tmp_path: Path
) -> None:
    imap, smtp, fields = servers
    mail = await start(SUMMARY, ca_file=tmp_path / "trusted" / "ca.pem")
    done = await sent(mail, connection(imap, smtp, **fields))
    assert done.result.status == SUCCEEDED, done.result.error
    assert len(smtp.taken) == 1


@pytest.mark.parametrize("security", ["implicit", "starttls"])
async def test_servers_with_an_unknown_certificate_get_no_password(
    servers: tuple[ImapServer, Any, dict[str, str]], start: Any, tmp_path: Path
) -> None:
    imap, smtp, fields = servers
    Authority(tmp_path / "another")
    mail = await start(SUMMARY, ca_file=tmp_path / "another" / "ca.pem")
    done = await sent(mail, connection(imap, smtp, **fields))
    assert done.result.error.type == "MailServerUnavailable"
    assert "TLS" in done.result.error.message
    assert smtp.taken == []


async def test_a_server_without_starttls_gets_no_password(start: Any) -> None:
    mail = await start(SUMMARY)
    plain = connection(mail.imap, mail.smtp, imap_security="starttls", smtp_security="starttls")
    done = await sent(mail, plain)
    assert done.result.error.type == "MailServerUnavailable"
    assert mail.smtp.taken == []


@pytest.mark.parametrize("server", ["10.0.0.1:143", "127.0.0.1:x"])
def test_sample_servers_are_on_loopback(server: str) -> None:
    with pytest.raises(ConfigurationError):
        MailSettings.load(sample_servers=(server,))


def test_a_sample_server_is_one_port_of_loopback() -> None:
    settings = MailSettings.load(sample_servers=("127.0.0.1:2143",))
    assert settings.networks_of("127.0.0.1", 2143)
    assert settings.networks_of("127.0.0.1", 2144) is None
    assert settings.networks_of("localhost", 2143) is None
    assert MailSettings.load().networks_of("127.0.0.1", 2143) is None
