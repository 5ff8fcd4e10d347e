from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from bos_errors import ConfigurationError
from bos_http.endpoints import Endpoint, received_headers, sent_headers

URL = "https://agents.example.com:8443/billing"


@pytest.mark.parametrize(
    ("url", "is_own"),
    [
        ("https://agents.example.com:8443/rpc", True),
        ("https://AGENTS.example.com:8443", True),
        ("https://agents.example.com/rpc", False),
        ("http://agents.example.com:8443/rpc", False),
        ("https://agents.example.com:8443@evil.example/rpc", False),
        ("https://[agents/rpc", False),
        ("", False),
    ],
)
def test_addresses_of_its_origin_are_recognised(url: str, is_own: bool) -> None:
    assert Endpoint(url=URL).is_origin_of(url) is is_own


def test_credentials_are_headers_and_shown_nowhere(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("t-0p\n")
    endpoint = Endpoint(url=URL, token_file=file, headers={"X-Key": "k-0p"})
    assert endpoint.credentials("BOS_X") == {"X-Key": "k-0p", "Authorization": "Bearer t-0p"}
    assert "k-0p" not in repr(endpoint)
    file.unlink()
    with pytest.raises(ConfigurationError, match=r"agents.example.com:8443.*token_file in BOS_X"):
        endpoint.credentials("BOS_X")


@pytest.mark.parametrize(
    "fields", [{"url": "ftp://x.example"}, {"url": URL, "token": "a", "token_file": "/b"}]
)
def test_wrong_endpoints_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Endpoint(**fields)


def test_headers_of_framing_and_cookies_pass_neither_way() -> None:
    given = {"Host": "x", "Cookie": "c", "Content-Type": "a/b", "Traceparent": "t"}
    assert sent_headers(given) == {"Content-Type": "a/b"}
    given = {"Set-Cookie": "c", "Content-Encoding": "gzip", "Content-Type": "a/b"}
    assert received_headers(given) == [("Content-Type", "a/b")]
