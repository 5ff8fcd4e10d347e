"""Every hop over TLS: gateway, planner, composer, agent, sandbox and REST as separate processes."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest

from bos.gateway.v1 import AgentRequest, AskRequest, OrchestratorServiceStub
from bos.sandbox.v1 import RunProgramRequest, SandboxServiceStub
from bos_chassis.auth.callers import RUN_TOKEN_KEY, RunTokenSigner, generate_keypair
from bos_testkit.certificates import Authority
from bos_testkit.processes import running_process, service_process, tls_environment

pytestmark = [pytest.mark.security, pytest.mark.timeout(900)]

KEY = "the-static-key-of-ada"
QUESTION = "What is 17 * 23?"
ANSWER = "391"
REST = Path(__file__).parents[2] / "build" / "bos-rest"
_TIMEOUT_S = 120.0


@dataclass
class Deployed:
    """What runs, and what it takes to get in."""

    authority: Authority
    signer: RunTokenSigner
    gateway: str
    sandbox: str
    rest: str

    def channel(self, address: str, service: str) -> grpc.aio.Channel:
        """A channel with the certificate of ``service``; empty: with none."""
        tls = self.authority.issue(service or "client")
        assert tls.ca_file is not None
        assert tls.key_file is not None
        assert tls.cert_file is not None
        own = (tls.key_file.read_bytes(), tls.cert_file.read_bytes()) if service else (None, None)
        return grpc.aio.secure_channel(
            address, grpc.ssl_channel_credentials(tls.ca_file.read_bytes(), *own)
        )


@pytest.fixture
async def deployed(postgres_dsn: str, tmp_path: Path) -> AsyncIterator[Deployed]:
    authority = Authority(tmp_path / "authority")
    private, public = generate_keypair()

    def variables(service: str, **own: str) -> dict[str, str]:
        certificates = tls_environment(authority.issue(service))
        return {**certificates, "BOS_AUTH_RUN_TOKEN_PUBLIC_KEYS": public, **own}

    async with AsyncExitStack() as stack:

        async def started(service: str, **own: str) -> str:
            running = service_process(f"bos_{service}", variables(service, **own))
            return (await stack.enter_async_context(running)).address

        planner, composer = await started("planner"), await started("composer")
        sandbox = await started("sandbox")
        computation = await started("computation", BOS_COMPUTATION_SANDBOX_TARGET=sandbox)
        gateway = await started(
            "gateway",
            BOS_GATEWAY_STORE_URL=postgres_dsn,
            BOS_GATEWAY_PLANNER_TARGET=planner,
            BOS_GATEWAY_COMPOSER_TARGET=composer,
            BOS_GATEWAY_AGENT_TARGETS=f"computation={computation}",
            BOS_GATEWAY_FALLBACK_AGENT="computation",
            BOS_GATEWAY_RUN_TOKEN_PRIVATE_KEY=private,
            BOS_AUTH_STATIC_KEY=KEY,
            BOS_TLS_CLIENT_CERTIFICATES="false",
        )
        rest = await stack.enter_async_context(
            running_process(
                REST,
                settings=variables(
                    "rest",
                    BOS_REST_GATEWAY_TARGET=gateway,
                    BOS_REST_PORT="0",
                    BOS_AUTH_STATIC_KEY=KEY,
                ),
            )
        )
        yield Deployed(authority, RunTokenSigner(private), gateway, sandbox, rest.address)


async def test_a_question_is_answered_over_grpc_and_rest(deployed: Deployed) -> None:
    bearer = f"Bearer {KEY}"
    request = AskRequest(request=AgentRequest(question=QUESTION))
    async with deployed.channel(deployed.gateway, "") as channel:
        answered = await OrchestratorServiceStub(channel).Ask(
            request, timeout=_TIMEOUT_S, metadata=(("authorization", bearer),)
        )
    assert ANSWER in answered.response.answer
    async with aiohttp.ClientSession(headers={"Authorization": bearer}) as http:
        asked: Any = {"question": QUESTION}
        async with http.post(f"http://{deployed.rest}/v1/runs:ask", json=asked) as reply:
            assert reply.status == 200, await reply.text()
            assert ANSWER in (await reply.json())["answer"]


async def test_missing_or_foreign_certificates_are_refused(
    deployed: Deployed, tmp_path: Path
) -> None:
    token = deployed.signer.mint("ada", "r1", "r1/0/a", ["computation", "sandbox"], 600)

    async def run(channel: grpc.aio.Channel) -> grpc.StatusCode:
        async with channel:
            try:
                await SandboxServiceStub(channel).RunProgram(
                    RunProgramRequest(code="1 + 1"),
                    timeout=_TIMEOUT_S,
                    metadata=((RUN_TOKEN_KEY, token),),
                )
            except grpc.aio.AioRpcError as error:
                return error.code()
        return grpc.StatusCode.OK

    other = Authority(tmp_path / "foreign-authority").issue("computation")
    ours = deployed.authority.issue("computation")
    assert other.key_file is not None
    assert other.cert_file is not None
    assert ours.ca_file is not None
    foreign = grpc.ssl_channel_credentials(
        ours.ca_file.read_bytes(), other.key_file.read_bytes(), other.cert_file.read_bytes()
    )
    away, refused = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNAUTHENTICATED
    assert await run(grpc.aio.insecure_channel(deployed.sandbox)) == away
    assert await run(deployed.channel(deployed.sandbox, "")) == away
    assert await run(grpc.aio.secure_channel(deployed.sandbox, foreign)) == away
    # The token of another agent's step, in the hands of a service of ours.
    assert await run(deployed.channel(deployed.sandbox, "sql")) == refused
    assert await run(deployed.channel(deployed.sandbox, "computation")) == grpc.StatusCode.OK
