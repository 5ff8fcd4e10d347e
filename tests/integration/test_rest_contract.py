"""The REST API keeps its OpenAPI document for generated requests."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from buf.validate import validate_pb2 as validate

from bos.gateway.v1 import AgentRequest
from bos.identity.v1 import CreateApiKeyRequest, RegisterUserRequest

from .rest_harness import ROOT, rest_harness

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
async def test_calls_are_answered_as_documented(
    tmp_path: Path, started_before: Callable[[Path], Path]
) -> None:
    assert SCHEMATHESIS.exists(), "make test ONLY=rest installs it"
    started_before(tmp_path / ".data")
    async with rest_harness(tmp_path) as harness:
        process = await asyncio.create_subprocess_exec(
            *(SCHEMATHESIS, "run", f"{harness.url}/openapi.json"),
            *("-H", f"Authorization: Bearer {harness.key}"),
            *("--checks", ",".join(CHECKS), "--phases", "examples,coverage,fuzzing"),
            *("--max-examples", "5", "--generation-deterministic", "--request-timeout", "60"),
            "--no-color",
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    assert b"Tested:" in said


def test_bounds_of_requests_are_those_of_the_contracts() -> None:
    document = json.loads((ROOT / "services/rest/gen/openapi/openapi.json").read_text())
    checked = Counter[str]()
    bodies = (
        (AgentRequest, document["components"]["schemas"]["AgentRequest"]),
        (RegisterUserRequest, _body(document["paths"]["/v1/users"])),
        (CreateApiKeyRequest, _body(document["paths"]["/v1/apiKeys"])),
    )
    for message, schema in bodies:
        for field in message.DESCRIPTOR.fields:
            rules = field.GetOptions().Extensions[validate.field]
            shown = schema["properties"].get(field.name)
            if shown is None:
                continue
            alternatives = shown.get("anyOf", [shown])
            for keyword, rule in (("maxLength", "max_len"), ("minLength", "min_len")):
                if rules.HasField("string") and rules.string.HasField(rule):
                    assert alternatives[0][keyword] == getattr(rules.string, rule), field.full_name
                    checked[keyword] += 1
                else:
                    assert keyword not in alternatives[0], field.full_name
            needed = rules.required or (rules.string.min_len > 0 and not field.has_presence)
            assert (field.name in schema.get("required", ())) == needed, field.full_name
            checked["required"] += needed
    assert min(checked[name] for name in ("maxLength", "minLength", "required")) >= 2


def _body(path: dict[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = path["post"]["requestBody"]["content"]["application/json"]["schema"]
    return schema
