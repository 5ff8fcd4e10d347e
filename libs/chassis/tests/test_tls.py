import asyncio
import ssl
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import structlog

from bos_chassis.auth.callers import RunTokenSigner, RunTokenVerifier, generate_keypair, run_token
from bos_chassis.channels import Channels, translate_rpc_errors
from bos_chassis.credentials.tls import (
    CertificateFiles,
    ClientTls,
    callers,
    calling_services,
    server_context,
)
from bos_chassis.settings import TlsSettings
from bos_chassis.telemetry import Telemetry
from bos_errors import ConfigurationError, Unauthenticated, Unavailable
from bos_testkit.certificates import Authority
from bos_testkit.waiting import eventually

_TIMEOUT_S = 60


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


@pytest.fixture
async def call(stub_of: Any, echo: Any) -> Any:
    """Calls ``method`` at an address with certificates."""
    async with AsyncExitStack() as stack:

        async def made(address: str, tls: TlsSettings | None, method: str = "get") -> Any:
            channels = await stack.enter_async_context(
                Channels(Telemetry.for_tests("caller"), tls=tls)
            )
            with translate_rpc_errors():
                return await getattr(stub_of(channels.get(address)), method)(
                    echo(text="hi"), timeout=_TIMEOUT_S
                )

        yield made


async def test_missing_foreign_or_expired_certificate_is_refused(
    start: Any, call: Any, authority: Authority, tmp_path: Path
) -> None:
    running = await start(tls=authority.issue("gateway"))
    foreign = Authority(tmp_path / "foreign").issue("sql")
    believing = foreign.model_copy(update={"ca_file": authority.issue("sql").ca_file})
    for tls in (None, believing, authority.issue("old", expired=True)):
        with pytest.raises(Unavailable):
            await call(running.server.address, tls)


async def test_a_server_of_a_foreign_authority_is_not_believed(
    start: Any, call: Any, authority: Authority, tmp_path: Path
) -> None:
    foreign = Authority(tmp_path / "foreign").issue("gateway")
    running = await start(tls=foreign.model_copy(update={"client_certificates": False}))
    with pytest.raises(Unavailable):
        await call(running.server.address, authority.issue("sql"))


async def test_handlers_learn_which_service_calls(
    start: Any, call: Any, authority: Authority, tmp_path: Path
) -> None:
    seen: list[Any] = []

    async def get(request: Any, context: Any) -> Any:
        seen.append(calling_services(context, "bos"))
        return request

    running = await start(tls=authority.issue("gateway"), get=get)
    await call(running.server.address, authority.issue("sql"))
    assert seen == [{"sql"}]
    plain = await start(get=get)
    await call(plain.server.address, None)
    assert seen == [{"sql"}, None]


@pytest.mark.parametrize(
    ("uri", "named"),
    [
        ("spiffe://bos/sql", {"sql"}),
        (b"spiffe://bos/mcp_db", {"mcp_db"}),
        ("spiffe://other/sql", set()),
        ("spiffe://bos/team/sql", set()),
        ("https://bos/sql", set()),
        (b"spiffe://bos/\xff", {"\N{REPLACEMENT CHARACTER}"}),
    ],
)
def test_only_uris_of_the_trust_domain_name_services(uri: Any, named: set[str]) -> None:
    assert callers([uri], "bos") == named


async def test_replaced_certificates_are_used_without_a_restart(
    start: Any, stub_of: Any, echo: Any, authority: Authority
) -> None:
    """Both sides' certificates change while a stream goes on; new calls show the new ones."""
    seen: list[bytes] = []
    go_on = asyncio.Event()

    async def get(request: Any, context: Any) -> Any:
        seen.append(context.auth_context()["x509_pem_cert"][0])
        return request

    async def watch(request: Any, context: Any) -> Any:
        yield request
        await go_on.wait()
        yield request

    serving, calling = authority.issue("gateway"), authority.issue("sql")
    running = await start(tls=serving, get=get, watch=watch)
    async with Channels(Telemetry.for_tests("caller"), tls=calling) as channels:
        stub = stub_of(channels.get(running.server.address))
        await stub.get(echo(text="hi"), timeout=_TIMEOUT_S)
        stream = stub.watch(echo(text="hi"), timeout=_TIMEOUT_S)
        await stream.read()
        first = seen[-1]
        authority.issue("sql")
        authority.issue("gateway")
        async with asyncio.timeout(_TIMEOUT_S):
            while seen[-1] == first:
                await stub.get(echo(text="hi"), timeout=_TIMEOUT_S)
        assert seen[-1].strip() == calling.cert_file.read_bytes().strip()
        assert await _shown_by(running.server, calling) == _first_certificate(serving)
        go_on.set()
        assert (await stream.read()).text == "hi"


async def test_files_half_replaced_or_broken_change_nothing(
    authority: Authority, tmp_path: Path
) -> None:
    settings, other = authority.issue("sql"), Authority(tmp_path / "other").issue("sql")
    log = structlog.get_logger()
    with structlog.testing.capture_logs() as logs:
        files = CertificateFiles(settings, log)
        before, key = files.current(), settings.key_file.read_bytes()

        async def until_logged(event: str) -> None:
            await eventually(lambda: files.current() and [one["event"] for one in logs] == [event])
            logs.clear()

        for broken in (b"", b"not a key", other.key_file.read_bytes()):
            settings.key_file.write_bytes(broken)
            await until_logged("certificate not replaced")
            assert files.current() is before
        settings.key_file.unlink()
        await until_logged("certificate not replaced")
        settings.key_file.write_bytes(key)
        await until_logged("certificate replaced")
        assert files.current() is not before


def test_missing_or_invalid_certificate_files_are_refused(
    authority: Authority, tmp_path: Path
) -> None:
    good = authority.issue("sql")
    empty = tmp_path / "empty.pem"
    empty.write_bytes(b"")
    for field in ("cert_file", "key_file", "ca_file"):
        for path in (empty, tmp_path / "missing.pem"):
            with pytest.raises(ConfigurationError, match=f"BOS_TLS_{field.upper()}"):
                CertificateFiles(good.model_copy(update={field: path}), structlog.get_logger())


def test_certificate_files_are_set_together_or_not_at_all(authority: Authority) -> None:
    good = authority.issue("sql")
    with pytest.raises(ConfigurationError, match="must be set together"):
        TlsSettings.load(cert_file=good.cert_file)
    assert not TlsSettings.load().configured


async def test_http_servers_and_clients_use_replaced_certificates_too(authority: Authority) -> None:
    serving, calling = authority.issue("mcp_db"), authority.issue("sql")
    log = structlog.get_logger()
    shown: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        shown.append(peer)
        await reader.read()
        writer.close()

    context = server_context(CertificateFiles(serving, log), client_certificates=True)
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    client = ClientTls(CertificateFiles(calling, log))

    async def connect() -> bytes:
        client.look()
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client.context)
        certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.write_eof() if writer.can_write_eof() else writer.close()
        assert await reader.read() == b""
        return certificate

    async with server:
        first = await connect()
        authority.issue("mcp_db")
        authority.issue("sql")
        async with asyncio.timeout(_TIMEOUT_S):
            while await connect() == first or shown[-1] == shown[0]:
                pass


@pytest.mark.parametrize(
    ("caller", "use", "offered", "taken"),
    [
        ("sql", "step", {}, True),
        ("mail", "step", {}, False),
        ("gateway", "service", {}, True),
        ("sql", "service", {}, False),
        # A service may name who else shows one, or let any.
        ("mcp_db", "passed on", {"shown_by": frozenset({"mcp_db"})}, True),
        ("sql", "passed on", {"shown_by": frozenset({"mcp_db"})}, True),
        ("mcp_db", "passed on", {"shown_by": frozenset()}, False),
        ("mail", "passed on", {"shown_by": None}, True),
    ],
)
async def test_run_token_is_accepted_from_its_audience_alone(
    start: Any,
    stub_of: Any,
    echo: Any,
    authority: Authority,
    caller: str,
    use: str,
    offered: dict[str, Any],
    taken: bool,
) -> None:
    private, public = generate_keypair()
    step, audiences, accepts = {
        "step": ("r1/0/a", ["sql", "echo"], ("step",)),
        "service": ("", ["echo"], ("service",)),
        "passed on": ("r1/0/a", ["sql", "mcp_db", "echo"], ()),
    }[use]
    token = RunTokenSigner(private).mint("ada", "r1", step, audiences, 600)
    auth: Any = RunTokenVerifier([public], "echo", *accepts)
    given = {"offered": {"auth": auth, **offered}} if offered else {"auth": auth}
    running = await start(tls=authority.issue("echo"), **given)
    plain = await start(**given)
    for server, tls in ((running.server, authority.issue(caller)), (plain.server, None)):
        refused = ""
        async with Channels(Telemetry.for_tests("caller"), tls=tls) as channels:
            try:
                with translate_rpc_errors(), run_token(token):
                    await stub_of(channels.get(server.address)).get(
                        echo(text="hi"), timeout=_TIMEOUT_S
                    )
            except Unauthenticated as error:
                refused = error.reason
        # Without a certificate there is no check.
        assert refused == ("" if taken or tls is None else "RUN_TOKEN_INVALID")


async def _shown_by(server: Any, calling: TlsSettings) -> bytes:
    """The certificate that new connections to ``server`` get."""
    context = ClientTls(CertificateFiles(calling, structlog.get_logger())).context
    context.set_alpn_protocols(["h2"])
    _, writer = await asyncio.open_connection(server.host, server.port, ssl=context)
    try:
        certificate: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return certificate
    finally:
        writer.close()


def _first_certificate(tls: TlsSettings) -> bytes:
    return ssl.PEM_cert_to_DER_cert(tls.cert_file.read_text())
