"""A connection that fails says why, without host, user or database."""

import socket
import ssl
from urllib.parse import quote, urlsplit, urlunsplit

import pytest
from asyncmy.errors import OperationalError

from bos_mcp_db.backends.connect_causes import connect_cause
from bos_mcp_db.connecting.roles.postgres import postgres_session
from bos_mcp_db.failures import DatabaseUnavailable

SECRET = "пароль-hidden"


def _changed(dsn: str, *, user: str = "", database: str = "", query: str = "") -> str:
    parts = urlsplit(dsn)
    netloc = f"{user}:{quote(SECRET)}@{parts.netloc.rpartition('@')[2]}" if user else parts.netloc
    return urlunsplit(
        parts._replace(
            netloc=netloc,
            path=f"/{quote(database)}" if database else parts.path,
            query="&".join(filter(None, [parts.query, query])),
        )
    )


async def test_postgres_says_why_it_cannot_be_reached(postgres_dsn: str) -> None:
    user = urlsplit(postgres_dsn).username or ""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))  # and does not listen
        closed = listener.getsockname()[1]
        causes = {
            _changed(postgres_dsn, user=user): "it refuses the user or the password",
            _changed(postgres_dsn, user="unknown"): "it refuses the user or the password",
            _changed(postgres_dsn, database="gibt-es-nicht"): "it has no database of that name, "
            "or none for this user",
            f"postgresql://a:{quote(SECRET)}@127.0.0.1:{closed}/x": "nothing listens at its "
            "address",
            f"postgresql://a:{quote(SECRET)}@no-such-host.invalid/x": "its host name is not known",
        }
        found = {}
        for url in causes:
            with pytest.raises(DatabaseUnavailable) as caught:
                async with postgres_session(url):
                    pass
            found[url] = caught.value.message
    assert found == {
        url: f"The database cannot be reached: {cause}." for url, cause in causes.items()
    }


def test_causes_of_drivers_and_networks() -> None:
    wrapped = OperationalError(2003, "Can't connect to 10.0.0.1 as root")
    wrapped.__cause__ = ConnectionRefusedError()
    circle = ValueError()
    circle.__cause__ = circle
    cases: list[tuple[BaseException, str]] = [
        (OperationalError(1045, "Access denied for 'root'@'10.0.0.1'"), "refuses the user"),
        (OperationalError(1049, "Unknown database 'x'"), "no database"),
        (OperationalError(1040, "Too many connections"), "no more connections"),
        (wrapped, "nothing listens"),
        (ssl.SSLCertVerificationError("self-signed"), "not trusted"),
        (ssl.SSLError("handshake"), "TLS cannot be agreed on"),
        (ConnectionError('PostgreSQL server at "h:1" rejected SSL upgrade'), "offers no TLS"),
        (TimeoutError(), "in time"),
    ]
    for error, words in cases:
        assert words in connect_cause(error), error
    for unknown in (OperationalError(9999, "h"), OperationalError(), circle, None):
        assert connect_cause(unknown) == ""
    assert DatabaseUnavailable().message == "The database cannot be reached."
