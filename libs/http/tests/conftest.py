"""A small internet with an authority, and clients in it."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from bos_chassis.telemetry import Telemetry
from bos_http import Failure, HttpClient, HttpFailed, HttpPolicy, HttpRefused, Rule
from bos_testkit.certificates import Authority
from bos_testkit.internet import world


@dataclass
class Internet(world.Internet):
    """An internet with an authority, and clients."""

    authority: Any = None

    async def site(
        self,
        respond: Callable[[world.Request], bytes | AsyncIterator[bytes]] = lambda _: world.ok(),
        *,
        address: str = world.PUBLIC,
        names: Sequence[str] = (),
        tls_names: Sequence[str] = (),
    ) -> world.Site:
        """Serve at port 80 of ``address`` (443 with ``tls_names``) and give it names."""
        return await self.serve(
            respond,
            address=address,
            names=(*names, *tls_names),
            port=443 if tls_names else 80,
            context=(lambda site: self._context(tls_names, site.sni)) if tls_names else None,
        )

    def _context(self, names: Sequence[str], seen: list[str | None]) -> ssl.SSLContext:
        tls = self.authority.issue("site", hosts=names)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls.cert_file, tls.key_file)
        context.sni_callback = lambda _, name, __: seen.append(name)
        return context

    async def client(self, telemetry: Telemetry | None = None, **policy: Any) -> HttpClient:
        """A client that may call any public host, unless the policy says otherwise."""
        policy.setdefault("hosts", ("*",))
        policy.setdefault("allow_http", True)
        policy.setdefault("methods", ("GET", "HEAD", "POST", "PUT"))
        policy.setdefault("ca_file", self.authority.ca_file)
        client = HttpClient(
            HttpPolicy.load(**policy), telemetry or Telemetry.for_tests(), resolver=self.names
        )
        return await self.stack.enter_async_context(client)

    async def client_of(
        self,
        respond: Callable[[world.Request], bytes | AsyncIterator[bytes]] = lambda _: world.ok(),
        **policy: Any,
    ) -> HttpClient:
        """A client in an internet whose ``example.com`` answers with ``respond``."""
        await self.site(respond, names=["example.com"])
        return await self.client(**policy)

    @staticmethod
    async def refusal(call: Awaitable[Any]) -> Rule | Failure:
        """The rule or the failure that ends a call."""
        with pytest.raises((HttpRefused, HttpFailed)) as caught:
            await call
        error = caught.value
        return error.rule if isinstance(error, HttpRefused) else error.failure


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
async def internet(authority: Authority) -> AsyncIterator[Internet]:
    net = Internet(authority=authority)
    async with world.wired(net):
        yield net


@pytest.fixture
def reply() -> Callable[..., bytes]:
    """``reply("302 Found", Location="/x")``: the bytes of a response."""
    return world.answer
