"""`bos` over TLS: whom it believes, what it shows, and what it never sends in plain text."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bos.identity.v1 import (
    GetUserRequest,
    GetUserResponse,
    IdentityServiceServicer,
    LogInRequest,
    LogInResponse,
    Tokens,
    User,
)
from bos_chassis.settings import TlsSettings
from bos_cli.main import main
from bos_client import BosClient
from bos_client.transport import Transport, current_transport, use_transport
from bos_errors import FailedPrecondition
from bos_testkit.certificates import Authority
from bos_testkit.scripted_gateway import KEY, Gateway

from .commands import bos_with_input, serving

pytestmark = pytest.mark.security


class Accounts(IdentityServiceServicer):
    open_methods = ("LogIn",)

    async def LogIn(self, request: LogInRequest, context: Any) -> LogInResponse:
        tokens = Tokens(access_token=KEY, refresh_token="refresh")
        tokens.access_token_lifetime.seconds = 900
        return LogInResponse(user=User(username=request.username), tokens=tokens)

    async def GetUser(self, request: GetUserRequest, context: Any) -> GetUserResponse:
        return GetUserResponse(user=User(username="ada", display_name="Ada"))


@dataclass
class Place:
    address: str
    gateway: Gateway
    tls: TlsSettings
    authority: Authority


Start = Callable[..., Awaitable[Place]]


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Start]:
    """Starts such places, which end with the test."""
    authority = Authority(tmp_path / "authority")
    async with AsyncExitStack() as stack:

        async def start(*, certificates: bool = False, host: str = "127.0.0.1") -> Place:
            changed = {"client_certificates": certificates}
            tls = authority.issue("gateway").model_copy(update=changed)
            gateway = Gateway()
            served = serving(gateway, Accounts(), host=host, tls=tls)
            return Place(await stack.enter_async_context(served), gateway, tls, authority)

        yield start


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


async def bos(*arguments: str, said: str = "", **variables: str) -> tuple[int, str]:
    """Run the program; its exit code, and all that it says."""
    return await bos_with_input(said, *arguments, env=variables)


async def test_ask_and_sign_in_over_tls(place: Start) -> None:
    at = await place()
    known = {"BOS_TARGET": at.address, "BOS_CA_FILE": str(at.tls.ca_file)}
    code, said = await bos("ask", "Who leads?", **known, BOS_API_KEY=KEY)
    assert code == 0, said
    assert "Acme leads" in said
    code, said = await bos("login", "ada", "--password-stdin", said="password\n", **known)
    assert code == 0, said
    code, said = await bos("whoami", **known)  # by the token that was kept
    assert "Ada (ada)" in said
    options = ("--target", f"grpcs://{at.address}", "--ca-file", str(at.tls.ca_file))
    code, said = await bos(*options, "agents", BOS_API_KEY=KEY)
    assert code == 0, said


async def test_a_certificate_is_shown_where_one_is_demanded(place: Start) -> None:
    at = await place(certificates=True)
    mine = at.authority.issue("ada")
    known = {
        "BOS_TARGET": at.address,
        "BOS_CA_FILE": str(at.tls.ca_file),
        "BOS_API_KEY": KEY,
        "BOS_CERT_FILE": str(mine.cert_file),
        "BOS_KEY_FILE": str(mine.key_file),
    }
    code, said = await bos("agents", **known)
    assert code == 0, said
    code, said = await bos("agents", **{**known, "BOS_KEY_FILE": ""})
    assert code != 0
    assert "--key-file" in said
    del known["BOS_CERT_FILE"], known["BOS_KEY_FILE"]
    code, said = await bos("agents", **known)
    assert code != 0
    assert "--cert-file" in said


async def test_another_authority_fails_with_the_fix(place: Start, tmp_path: Path) -> None:
    at = await place()
    other = Authority(tmp_path / "other").issue("gateway")
    for known in (
        {"BOS_TARGET": at.address, "BOS_CA_FILE": str(other.ca_file)},
        {"BOS_TARGET": f"grpcs://{at.address}"},  # those of this system
    ):
        code, said = await bos("ask", "Who leads?", **known, BOS_API_KEY=KEY)
        assert code != 0
        assert "--ca-file" in said
        assert "authority" in said
    assert at.gateway.asked == []


async def test_a_certificate_for_another_host_is_not_believed(place: Start) -> None:
    at = await place(host="127.0.0.2")  # which the certificate does not name
    with use_transport(Transport(ca_file=str(at.tls.ca_file))):
        async with BosClient(at.address, api_key=KEY, timeout_s=30) as gateway:
            with pytest.raises(FailedPrecondition, match="for another host"):
                await gateway.agents()


def test_options_of_one_command_do_not_outlive_it() -> None:
    before = current_transport()
    assert CliRunner().invoke(main, ["--target", "unix:/nowhere", "login", "--help"]).exit_code == 0
    assert current_transport() == before


async def test_no_key_leaves_this_machine_in_plain_text() -> None:
    code, said = await bos("--target", "bos.example:8080", "agents", BOS_API_KEY=KEY)
    assert code == 2
    assert "--ca-file" in said
    assert "--insecure" in said
    assert KEY not in said
