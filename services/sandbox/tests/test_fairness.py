"""Users share the sandbox: the endless programs of one leave the next one a place at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from bos.sandbox.v1 import ProgramStatus, RunProgramRequest, SandboxServiceStub, Tier
from bos_chassis.auth.callers import RunTokenSigner, RunTokenVerifier, generate_keypair
from bos_chassis.settings import ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import from_value
from bos_errors import from_rpc_error
from bos_sandbox.service import AUDIENCE, serve
from bos_sandbox.settings import SandboxSettings

pytestmark = pytest.mark.security

ENDLESS = "while True:\n    pass"
MANY = 12
SUCCEEDED = ProgramStatus.PROGRAM_STATUS_SUCCEEDED


class Users:
    """Calls of the sandbox in the name of different users."""

    def __init__(self, stub: Any, signer: RunTokenSigner, tier: Tier) -> None:
        self._stub = stub
        self._signer = signer
        self._tier = tier

    def run(self, user: str, code: str) -> Any:
        token = self._signer.mint(user, f"run-{user}", f"run-{user}/0/a", [AUDIENCE], ttl_s=240)
        return self._stub.RunProgram(
            RunProgramRequest(code=code, tier=self._tier),
            metadata=(("bos-run-token", token),),
            timeout=100,
        )


@asynccontextmanager
async def users(tier: Tier, **settings: Any) -> AsyncIterator[Users]:
    private, public = generate_keypair()
    chosen = SandboxSettings.load(
        server=ServerSettings(reflection=False, grace_s=1),
        # The greedy one's programs outlast every wait of this test.
        timeout_s=100,
        queue_timeout_s=30,
        warm_workers=1,
        **settings,
    )
    async with (
        serve(
            chosen,
            Telemetry.for_tests("sandbox"),
            auth=RunTokenVerifier([public], AUDIENCE),
        ) as server,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        yield Users(SandboxServiceStub(channel), RunTokenSigner(private), tier)


@pytest.mark.parametrize(
    ("tier", "endless", "settings"),
    [
        (Tier.TIER_INTERPRETER, ENDLESS, {"max_workers": 3, "process_enabled": False}),
        (
            Tier.TIER_PROCESS,
            "import time\ntime.sleep(1000)",
            {"process_max_workers": 2, "process_warm_workers": 0},
        ),
    ],
    ids=["interpreter", "process"],
)
async def test_endless_programs_of_one_user_leave_another_a_place(
    tier: Tier, endless: str, settings: dict[str, Any]
) -> None:
    async with users(tier, **settings) as sandbox:
        greedy = [sandbox.run("greedy", endless) for _ in range(MANY)]
        try:
            # One after the other: the place is there each time, not once by luck.
            for _ in range(3):
                response = await sandbox.run("other", "6 * 7")
                assert response.status == SUCCEEDED
                assert from_value(response.result) == 42
            assert not any(call.done() for call in greedy)
        finally:
            for call in greedy:
                call.cancel()
            await asyncio.gather(*greedy, return_exceptions=True)


async def test_a_lone_user_beyond_all_places_is_refused() -> None:
    async with users(Tier.TIER_INTERPRETER, max_workers=2, process_enabled=False) as sandbox:
        calls = [sandbox.run("greedy", ENDLESS) for _ in range(120)]
        asking = [asyncio.create_task(reason_of(call)) for call in calls]
        try:
            ended, _ = await asyncio.wait(asking, timeout=60, return_when=asyncio.FIRST_COMPLETED)
            assert {task.result() for task in ended} == {"SANDBOX_BUSY"}
            assert (await sandbox.run("other", "1")).status == SUCCEEDED
        finally:
            for call in calls:
                call.cancel()
            await asyncio.gather(*asking, return_exceptions=True)


async def reason_of(call: Any) -> str:
    """Why a call was refused."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return from_rpc_error(caught.value).reason
