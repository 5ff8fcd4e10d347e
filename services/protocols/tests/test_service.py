"""The protocols service' server, and the credentials that it passes on."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx2
import pytest
from a2a.types.a2a_pb2 import GetExtendedAgentCardRequest
from a2a.types.a2a_pb2_grpc import A2AServiceStub
from starlette.datastructures import Headers

from bos.gateway.v1 import (
    ListAgentsResponse,
    OrchestratorServiceServicer,
    add_OrchestratorServiceServicer_to_server,
)
from bos_chassis.channels import Channels
from bos_chassis.settings import ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_errors import Unauthenticated, Unimplemented
from bos_protocols.a2a import quiet_sdk
from bos_protocols.caller import Gateway
from bos_protocols.service import serve
from bos_protocols.settings import ProtocolsSettings
from bos_testkit.certificates import Authority


class Seen(OrchestratorServiceServicer):
    """A gateway that keeps the metadata of its last call."""

    def __init__(self) -> None:
        self.metadata: dict[str, str | bytes] = {}

    async def ListAgents(self, request: Any, context: Any) -> ListAgentsResponse:
        self.metadata = dict(context.invocation_metadata())
        return ListAgentsResponse(roles=["user"])


@asynccontextmanager
async def gateway() -> AsyncIterator[tuple[Gateway, Seen]]:
    server, seen = grpc.aio.server(), Seen()
    add_OrchestratorServiceServicer_to_server(seen, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    settings = ProtocolsSettings.load(gateway_target=f"127.0.0.1:{port}")
    async with Channels(Telemetry.for_tests("protocols")) as channels:
        yield Gateway(channels.get(settings.gateway_target), settings), seen
    await server.stop(None)


async def test_the_server_is_healthy_and_knows_no_other_path() -> None:
    settings = ProtocolsSettings.load(server=ServerSettings.load(port=0, grace_s=0))
    async with (
        serve(settings, Telemetry.for_tests("protocols")) as server,
        httpx2.AsyncClient(base_url=f"http://{server.address}") as http,
    ):
        assert (await http.get("/healthz")).status_code == 200
        assert (await http.get("/nothing")).status_code == 404


async def test_a2a_is_offered_over_grpc_and_tls_to_callers_without_certificates(
    tmp_path: Path,
) -> None:
    tls = Authority(tmp_path).issue("protocols").model_copy(update={"client_certificates": False})
    trusted = grpc.ssl_channel_credentials((tmp_path / "ca.pem").read_bytes())
    async with gateway() as (endpoint, seen):
        settings = endpoint.settings.model_copy(
            update={
                "server": ServerSettings.load(port=0, grace_s=0),
                "a2a_server": ServerSettings.load(port=0, grace_s=0, tls=tls),
                "a2a_grpc_address": "",
            }
        )
        async with serve(settings, Telemetry.for_tests("protocols")) as server:
            port = server.a2a_address.rpartition(":")[2]
            async with grpc.aio.secure_channel(f"localhost:{port}", trusted) as channel:
                card = await A2AServiceStub(channel).GetExtendedAgentCard(  # type: ignore[no-untyped-call]
                    GetExtendedAgentCardRequest(),
                    metadata=(
                        ("authorization", "Bearer k"),
                        ("bos-proxy-token", "forged"),
                        ("a2a-version", "1.0"),
                    ),
                )
    assert "bos-proxy-token" not in seen.metadata
    assert seen.metadata["authorization"] == "Bearer k"
    offered = [one.url for one in card.supported_interfaces if one.protocol_binding == "GRPC"]
    assert offered == [server.a2a_address]


async def test_the_gateway_is_called_with_the_callers_credential_and_address() -> None:
    headers = Headers({"Authorization": "Bearer k", "bos-proxy-token": "t", "cookie": "c"})
    async with gateway() as (endpoint, seen):
        assert (await endpoint.client(headers).access()).roles == ["user"]
        assert seen.metadata["authorization"] == "Bearer k"
        assert seen.metadata["bos-proxy-token"] == "t"
        assert "cookie" not in seen.metadata


async def test_callers_do_not_share_credentials() -> None:
    async with gateway() as (endpoint, seen):
        first, second = (
            endpoint.client(Headers({"authorization": "Bearer a"})),
            endpoint.client(Headers()),
        )
        await second.access()
        assert "authorization" not in seen.metadata
        await first.access()
        assert seen.metadata["authorization"] == "Bearer a"


async def test_two_credentials_are_refused() -> None:
    twice = Headers(raw=[(b"authorization", b"Bearer a"), (b"authorization", b"Bearer b")])
    async with gateway() as (endpoint, _):
        with pytest.raises(Unauthenticated, match="one Authorization"):
            endpoint.client(twice)


async def test_documents_are_called_with_the_callers_credential_where_there_are_some() -> None:
    headers = Headers({"authorization": "Bearer k", "cookie": "c"})
    async with gateway() as (endpoint, _):
        with pytest.raises(Unimplemented, match="no documents"):
            endpoint.documents(headers)
        there = Gateway(endpoint.channel, endpoint.settings, endpoint.channel)
        assert await there.documents(headers)._metadata() == (("authorization", "Bearer k"),)


async def test_addresses_in_replies_are_those_configured_or_called() -> None:
    async with gateway() as (endpoint, _):
        assert endpoint.public_url(Headers({"bos-public-url": "http://127.0.0.1:8000"})) == (
            "http://127.0.0.1:8000"
        )
        own = endpoint.settings.model_copy(update={"public_url": "https://bos.example.org"})
        fixed = Gateway(endpoint.channel, own)
        assert (
            fixed.public_url(Headers({"bos-public-url": "http://x"})) == "https://bos.example.org"
        )


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/a2a", {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": ["secret"]}}),
        ("/a2a", {"jsonrpc": "2.0", "id": ["secret"], "method": {"secret": 1}}),
        ("/a2a", {"jsonrpc": "2.0", "id": "secret", "method": "secret"}),
        ("/a2a/v1/message:send", {"message": "secret"}),
        ("/a2a/v1/message:send", {"message": {"parts": [{"text": "secret"}]}}),
    ],
)
async def test_what_callers_of_a2a_send_wrongly_is_not_in_the_log(
    path: str, body: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings = ProtocolsSettings.load(server=ServerSettings.load(port=0, grace_s=0))
    headers = {"A2A-Version": "1.0"}
    async with (
        serve(settings, Telemetry.for_tests("protocols")) as server,
        httpx2.AsyncClient(base_url=f"http://{server.address}", headers=headers) as http,
    ):
        assert "error" in (await http.post(path, json=body)).json()
    assert not [one for one in caplog.records if one.name.startswith("a2a")]
    assert "secret" not in caplog.text


def test_a_defect_of_the_sdk_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    quiet_sdk()
    quiet_sdk()
    log = logging.getLogger("a2a.utils.error_handlers")
    assert len(log.filters) == 1
    try:
        raise KeyError("defect")
    except KeyError:
        log.exception("Unknown error occurred")
    log.warning("Request error: what a caller sent")
    assert [one.message for one in caplog.records] == ["Unknown error occurred"]
