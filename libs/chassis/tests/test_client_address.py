"""Where a call comes from, and what counts as one origin."""

import pytest

from bos_chassis.client_address import client_address, network


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("ipv4:203.0.113.7:1234", None, "203.0.113.7"),
        ("ipv6:%5B2001:db8::1%5D:1234", None, "2001:db8::1"),
        ("unix:/tmp/socket", None, ""),
        ("ipv4:10.0.0.1:1234", "203.0.113.7", "203.0.113.7"),
        ("unix:/tmp/socket", "::ffff:203.0.113.7", "203.0.113.7"),
        ("ipv4:10.0.0.1:1234", "nonsense", ""),
    ],
)
def test_where_a_client_is(peer: str, forwarded: str | None, address: str) -> None:
    assert client_address(peer, forwarded) == address


def test_an_ipv6_site_counts_as_one() -> None:
    assert network("2001:db8::1") == network("2001:db8::ffff:1")
    assert network("2001:db8::1") != network("2001:db8:0:1::1")
    assert network("203.0.113.7") != network("203.0.113.8")
    assert network("::ffff:203.0.113.7") == network("203.0.113.7")
    assert network("") == ""
