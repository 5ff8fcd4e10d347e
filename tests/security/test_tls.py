"""Every hop over TLS: gateway, planner, composer, agent, sandbox and REST as separate processes.

Which certificates are refused is in ``libs/chassis/tests/test_tls.py``.
"""

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
from bos_chassis.auth.callers import generate_keypair
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
    """What runs."""

    authority: Authority
    gateway: str
    sandbox: str
    rest: str

    def channel(self, address: str) -> grpc.aio.Channel:
        """A channel without a certificate of its own."""
        ca_file = self.authority.issue("client").ca_file
        assert ca_file is not None
        return grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(ca_file.read_bytes()))


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
        yield Deployed(authority, gateway, sandbox, rest.address)


async def test_question_is_answered_and_callers_without_certificate_refused(
    deployed: Deployed,
) -> None:
    bearer = f"Bearer {KEY}"
    request = AskRequest(request=AgentRequest(question=QUESTION))
    async with deployed.channel(deployed.gateway) as channel:
        answered = await OrchestratorServiceStub(channel).Ask(
            request, timeout=_TIMEOUT_S, metadata=(("authorization", bearer),)
        )
    assert ANSWER in answered.response.answer
    async with aiohttp.ClientSession(headers={"Authorization": bearer}) as http:
        asked: Any = {"question": QUESTION}
        async with http.post(f"http://{deployed.rest}/v1/runs:ask", json=asked) as reply:
            assert reply.status == 200, await reply.text()
            assert ANSWER in (await reply.json())["answer"]
    async with deployed.channel(deployed.sandbox) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await SandboxServiceStub(channel).RunProgram(
                RunProgramRequest(code="1 + 1"), timeout=_TIMEOUT_S
            )
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
