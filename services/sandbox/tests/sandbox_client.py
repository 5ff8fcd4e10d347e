"""A client of a real sandbox service."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import grpc

from bos.sandbox.v1 import Limits, RunProgramRequest, RunProgramResponse, SandboxServiceStub, Tier
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import from_value, to_value
from bos_sandbox.service import serve
from bos_sandbox.settings import SandboxSettings


def read(path: str) -> str:
    """A file of ``/proc``; empty if its process has gone."""
    try:
        return Path("/proc", path).read_text()
    except (OSError, UnicodeDecodeError):
        return ""


def descendants() -> dict[int, str]:
    """Command lines of the processes that this one or its children started, the dead included."""
    found: dict[int, str] = {}
    parents = [os.getpid()]
    while parents:
        parent = parents.pop()
        for task in Path(f"/proc/{parent}/task").glob("*"):
            for pid in map(int, read(f"{parent}/task/{task.name}/children").split()):
                found[pid] = read(f"{pid}/cmdline")
                parents.append(pid)
    return found


@dataclass
class Sandbox:
    """A real sandbox service and a client of it."""

    stub: Any
    telemetry: Telemetry
    tier: Tier = Tier.TIER_UNSPECIFIED

    async def run(
        self,
        code: str,
        inputs: Mapping[str, Any] | None = None,
        *,
        limits: Limits | None = None,
        tier: Tier | None = None,
        return_files: bool = False,
    ) -> RunProgramResponse:
        values = {name: to_value(value) for name, value in (inputs or {}).items()}
        request = RunProgramRequest(
            code=code,
            inputs=values,
            limits=limits,
            tier=self.tier if tier is None else tier,
            return_files=return_files,
        )
        return await self.stub.RunProgram(request, timeout=200)

    async def result(self, code: str, inputs: Mapping[str, Any] | None = None) -> Any:
        response = await self.run(code, inputs)
        assert not response.error_type, (code, response.error_type, response.error_message)
        return from_value(response.result)


@asynccontextmanager
async def open_sandbox(
    settings: SandboxSettings, tier: Tier = Tier.TIER_UNSPECIFIED
) -> AsyncIterator[Sandbox]:
    """A service with these settings, whose client requests this tier by default."""
    telemetry = Telemetry.for_tests("sandbox")
    async with (
        serve(settings, telemetry) as server,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        yield Sandbox(SandboxServiceStub(channel), telemetry, tier)


VALUES = [
    None,
    True,
    -(2**63),
    2**63 - 1,
    1.5,
    float("-inf"),
    Decimal("1.10"),
    Decimal("-1E-20"),
    Decimal(2**90),
    "",
    "text with ü, \x00 and \n",
    b"\x00\xff",
    date(2024, 2, 29),
    datetime(2025, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC),
    {},
    [1, [2.0, None], {"a": Decimal("3.30"), "map": {"int": "5"}}],
]
"""A program that gets these returns them unchanged."""

LIMITS = [
    ("print('a' * 99)", Limits(output_bytes=100), 1),
    ("print('a' * 100)", Limits(output_bytes=100), 0),
    ("'x' * 1_000_000", None, 1),
    ("'x' * 1_100_000", None, 0),
    ("10 ** 4299", None, 1),
    ("10 ** 4300", None, 0),
]
"""Programs, the limits of the request, and whether they stay within all limits."""
