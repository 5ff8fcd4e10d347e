"""Checks of what the gateway calls: health, run tokens, and the cards of the agents."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]

from bos.agent.v1 import AgentCard, AgentServiceStub, DescribeRequest
from bos.composer.v1 import ComposeRequest, ComposerServiceStub
from bos.planner.v1 import MakePlanRequest, PlannerServiceStub
from bos_chassis.auth import RUN_TOKEN_KEY, RunTokenSigner
from bos_chassis.channels import translate_rpc_errors
from bos_chassis.errors import (
    BosError,
    ConfigurationError,
    InvalidArgument,
    NotFound,
    Unauthenticated,
    Unimplemented,
)
from bos_client import BosClient
from bos_client.errors import BosError as ClientError
from bos_gateway.operator.findings import Finding, ok, problem, warning

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bos_gateway.effects import Metadata
    from bos_gateway.operator.deployment import Deployment

_CALL_S: Final = 2.0
_AGENT, _PLANNER, _COMPOSER = (
    "bos.agent.v1.AgentService",
    "bos.planner.v1.PlannerService",
    "bos.composer.v1.ComposerService",
)
# So short that a service whose clock is off by more than the leeway of seconds refuses the token.
_TOKEN_S: Final = 1.0
_SKEW = "about 3 s"


@dataclass(frozen=True, slots=True)
class _Service:
    name: str
    target: str
    service: str
    variable: str


@dataclass(frozen=True, slots=True)
class Answers:
    """What the services said."""

    findings: list[Finding]
    cards: Mapping[str, AgentCard]
    """By configured name, of the agents that answered."""


async def check_targets(deployment: Deployment) -> Answers:
    """Ask planner, composer and every agent, all at once, within a bounded time."""
    findings, signer = _signer(deployment)
    services = [
        _Service("planner", deployment.planner_target, _PLANNER, "BOS_GATEWAY_PLANNER_TARGET"),
        _Service("composer", deployment.composer_target, _COMPOSER, "BOS_GATEWAY_COMPOSER_TARGET"),
        *(
            _Service(name, target, _AGENT, "BOS_GATEWAY_AGENT_TARGETS")
            for name, target in sorted(deployment.agent_targets.items())
        ),
    ]
    if not deployment.agent_targets:
        findings.append(problem("agents", "none is configured", "Set BOS_GATEWAY_AGENT_TARGETS."))
    cards: dict[str, AgentCard] = {}
    asked = await asyncio.gather(*(_ask(each, signer, deployment, cards) for each in services))
    findings.extend(finding for group in asked for finding in group)
    if deployment.local is not None:
        findings.extend(await _ask_gateway(deployment, cards))
    return Answers(findings, cards)


def _signer(deployment: Deployment) -> tuple[list[Finding], RunTokenSigner | None]:
    if deployment.local is not None:
        return [], None
    key = deployment.run_token_private_key
    if key is None:
        return [
            warning(
                "run tokens",
                "no key is set; services cannot tell the gateway from others",
                "Fine on one machine. Else set BOS_GATEWAY_RUN_TOKEN_PRIVATE_KEY, and "
                "BOS_AUTH_RUN_TOKEN_PUBLIC_KEYS of the services.",
            )
        ], None
    try:
        signer = RunTokenSigner(key.get_secret_value())
    except ConfigurationError as error:
        advice = "Correct BOS_GATEWAY_RUN_TOKEN_PRIVATE_KEY."
        return [problem("run tokens", error.message, advice)], None
    return [ok("run tokens", "the gateway's private key can be used")], signer


async def _ask(
    service: _Service,
    signer: RunTokenSigner | None,
    deployment: Deployment,
    cards: dict[str, AgentCard],
) -> list[Finding]:
    async with grpc.aio.insecure_channel(service.target) as channel:
        health = await _health(channel, service, deployment.remedy)
        if health.advice or deployment.local is not None:
            return [health]
        found = [health, await _signed(channel, service, signer, cards)]
        if signer is not None and await _accepts_anybody(channel, service):
            found.append(
                warning(
                    service.name,
                    "answers also without a run token",
                    "Set BOS_AUTH_RUN_TOKEN_PUBLIC_KEYS of this service.",
                )
            )
        return found


async def _signed(
    channel: grpc.aio.Channel,
    service: _Service,
    signer: RunTokenSigner | None,
    cards: dict[str, AgentCard],
) -> Finding:
    """Call as the gateway does, by a token that proves keys and clock at once."""
    metadata: Metadata = ()
    if signer is not None:
        token = signer.mint("bos doctor", "", "", [service.name], _TOKEN_S)
        metadata = ((RUN_TOKEN_KEY, token),)
    try:
        card = await _call(channel, service, metadata)
    except Unauthenticated as error:
        return _refused(service, error, signed=signer is not None)
    except BosError as error:
        text = f"is serving, but fails a call ({error.code.name}, {error.reason})"
        return problem(service.name, text, "See its log.")
    if card is not None:
        cards[service.name] = card
    if signer is None:
        return ok(service.name, "answers a call")
    return ok(service.name, f"accepts the gateway's run token; its clock is within {_SKEW}")


def _refused(service: _Service, error: Unauthenticated, *, signed: bool) -> Finding:
    if not signed:
        advice = "Set BOS_GATEWAY_RUN_TOKEN_PRIVATE_KEY to the key that belongs to its public one."
        return problem(service.name, "asks for a run token, and no usable key is set", advice)
    if error.reason == "RUN_TOKEN_EXPIRED":
        text = f"takes a fresh run token for expired: its clock is ahead by over {_SKEW}"
        return problem(service.name, text, "Synchronise the clocks of both machines (NTP).")
    return problem(
        service.name,
        "refuses the gateway's run token",
        "Add the public key of BOS_GATEWAY_RUN_TOKEN_PRIVATE_KEY to its "
        f"BOS_AUTH_RUN_TOKEN_PUBLIC_KEYS; or its clock is behind by over {_SKEW}.",
    )


async def _accepts_anybody(channel: grpc.aio.Channel, service: _Service) -> bool:
    try:
        await _call(channel, service, ())
    except BosError:
        return False
    return True


async def _call(
    channel: grpc.aio.Channel, service: _Service, metadata: Metadata
) -> AgentCard | None:
    """The cheapest call behind authentication; of agents, the card.

    Planner and composer are sent an empty request. They refuse it as invalid before any work, but
    after they have looked at who is calling.

    Raises:
        BosError: it was refused for another reason.
    """
    try:
        with translate_rpc_errors():
            if service.service == _AGENT:
                answer = await AgentServiceStub(channel).Describe(
                    DescribeRequest(), timeout=_CALL_S, metadata=metadata
                )
                return answer.card
            if service.service == _PLANNER:
                await PlannerServiceStub(channel).MakePlan(
                    MakePlanRequest(), timeout=_CALL_S, metadata=metadata
                )
            else:
                call = ComposerServiceStub(channel).Compose(
                    ComposeRequest(), timeout=_CALL_S, metadata=metadata
                )
                try:
                    await call.read()
                finally:
                    call.cancel()
    except InvalidArgument:
        pass
    return None


async def _health(channel: grpc.aio.Channel, service: _Service, remedy: str) -> Finding:
    what = f"{service.name} at {service.target}"
    request = health_pb2.HealthCheckRequest(service=service.service)
    try:
        with translate_rpc_errors():
            answer = await health_pb2_grpc.HealthStub(channel).Check(request, timeout=_CALL_S)
    except (NotFound, Unimplemented):
        advice = f"Correct {service.variable}: something else listens there."
        return problem(service.name, f"{what} does not offer {service.service}", advice)
    except BosError as error:
        advice = f"{remedy}, or correct {service.variable}."
        return problem(service.name, f"{what} does not answer ({error.code.name})", advice)
    if answer.status != health_pb2.HealthCheckResponse.SERVING:
        return problem(service.name, f"{what} is not serving", "It starts or ends; see its log.")
    return ok(service.name, f"{what} is serving")


async def _ask_gateway(deployment: Deployment, cards: dict[str, AgentCard]) -> list[Finding]:
    """Have the gateway of a standalone say how it gets on with its agents.

    The key of its run tokens never leaves its process, so nobody else could ask them.
    """
    local = deployment.local
    assert local is not None
    try:
        async with BosClient(local.target, api_key=local.api_key, timeout_s=_CALL_S) as bos:
            agents = await bos.agents()
    except ClientError as error:
        text = f"gateway at {local.target} does not answer ({error.code.name})"
        return [problem("gateway", text, f"{deployment.remedy}.")]
    found = [ok("gateway", f"gateway at {local.target} answers")]
    for agent in agents:
        name = agent.card.name
        if agent.available:
            cards[name] = agent.card
            found.append(ok(name, "answers the gateway's signed calls"))
        else:
            text = f"does not answer the gateway: {agent.unavailable_reason}"
            found.append(problem(name, text, "See the log, .data/standalone.log."))
    return found
