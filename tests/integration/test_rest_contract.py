"""The OpenAPI document has the bounds of the contracts."""

import json
from collections import Counter
from typing import Any

import pytest
from buf.validate import validate_pb2 as validate

from bos.gateway.v1 import AgentRequest
from bos.identity.v1 import CreateApiKeyRequest, RegisterUserRequest

from .rest_harness import ROOT

pytestmark = pytest.mark.rest


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
