"""What the OpenAPI document promises holds for whatever a caller makes of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from .rest_house import ROOT, rest_house

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.rest]

SCHEMATHESIS = ROOT / ".cache/schemathesis/bin/st"
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
)


@pytest.mark.timeout(600)
async def test_no_call_has_a_server_error_or_an_answer_that_is_not_documented(
    tmp_path: Path,
) -> None:
    assert SCHEMATHESIS.exists(), "make test-rest installs it"
    async with rest_house(tmp_path) as house:
        process = await asyncio.create_subprocess_exec(
            *(SCHEMATHESIS, "run", f"{house.url}/openapi.json"),
            *("-H", f"Authorization: Bearer {house.key}"),
            *("--checks", ",".join(CHECKS), "--phases", "examples,coverage,fuzzing"),
            *("--max-examples", "10", "--generation-deterministic", "--request-timeout", "60"),
            "--no-color",
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    assert b"Tested:" in said
