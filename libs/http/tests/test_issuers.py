"""Keys of an issuer over HTTP: by its own configuration, or by a URL of their own."""

import pytest
from token_issuer import Issuer, accepts, opened, openid_issuer

from bos_errors import Unavailable
from bos_http import issuer_document


async def test_openid_issuer_needs_its_url_or_that_of_its_keys() -> None:
    issuer = Issuer("RS256")
    async with (
        openid_issuer(issuer) as url,
        opened(issuer_document, issuer=url) as (authenticator, _),
    ):
        assert (await accepts(authenticator, issuer.token(iss=url))).user_id == "u1"
    async with (
        openid_issuer(issuer) as url,
        opened(issuer_document, jwks_url=f"{url}/keys") as (authenticator, _),
    ):
        assert (await accepts(authenticator, issuer.token())).user_id == "u1"


async def test_the_configuration_of_another_issuer_is_not_believed() -> None:
    issuer = Issuer("RS256")
    async with (
        openid_issuer(issuer, issuer="https://evil.example.com") as url,
        opened(issuer_document, issuer=url) as (authenticator, _),
    ):
        with pytest.raises(Unavailable):
            await accepts(authenticator, issuer.token(iss=url))
