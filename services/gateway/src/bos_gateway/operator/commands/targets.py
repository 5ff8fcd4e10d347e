"""Checks of what the gateway calls: health, run tokens, and the cards of the agents."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]

import bos_errors as errors
from bos.agent.v1 import AgentCard, AgentServiceStub, DescribeRequest
from bos.composer.v1 import ComposeRequest, ComposerServiceStub
from bos.planner.v1 import MakePlanRequest, PlannerServiceStub
from bos_chassis.auth.callers import RUN_TOKEN_KEY, RunTokenSigner
from bos_chassis.auth.run_token_keys import signing_keys_file
from bos_chassis.channels import translate_rpc_errors
from bos_chassis.credentials.tls import channel_credentials
from bos_client import BosClient
from bos_errors import BosError as ClientError
from bos_gateway.operator.commands.certificates import check_shown, open_certificates
from bos_gateway.operator.commands.findings import Finding, ok, problem, warning
from bos_gateway.ownership.attempt_checks import FILE_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bos_chassis.credentials.tls import CertificateFiles
    from bos_client.connection import Connection
    from bos_gateway.operator.commands.deployment import Deployment

_CALL_S: Final = 2.0
# So short that a service whose clock is off by more than the leeway of seconds refuses the token.
_TOKEN_S: Final = 1.0
_SKEW = "about 3 s"


@dataclass(frozen=True, slots=True)
class _Service:
    name: str
    target: str
    offers: str
    variable: str
    call: Callable[..., Awaitable[AgentCard | None]]
    """The cheapest one behind authentication.

    Planner and composer are sent an empty request. They refuse it as invalid before any work, but
    after they have looked at who is calling.
    """


async def _describe(channel: grpc.aio.Channel, **how: Any) -> AgentCard:
    return (await AgentServiceStub(channel).Describe(DescribeRequest(), **how)).card


async def _make_plan(channel: grpc.aio.Channel, **how: Any) -> None:
    await PlannerServiceStub(channel).MakePlan(MakePlanRequest(), **how)


async def _compose(channel: grpc.aio.Channel, **how: Any) -> None:
    await ComposerServiceStub(channel).Compose(ComposeRequest(), **how).read()


def _services(deployment: Deployment) -> list[_Service]:
    planner = ("bos.planner.v1.PlannerService", "BOS_GATEWAY_PLANNER_TARGET", _make_plan)
    composer = ("bos.composer.v1.ComposerService", "BOS_GATEWAY_COMPOSER_TARGET", _compose)
    agent = ("bos.agent.v1.AgentService", "BOS_GATEWAY_AGENT_TARGETS", _describe)
    return [
        _Service("planner", deployment.planner_target, *planner),
        _Service("composer", deployment.composer_target, *composer),
        *(_Service(name, at, *agent) for name, at in sorted(deployment.agent_targets.items())),
    ]


async def check_targets(deployment: Deployment) -> tuple[list[Finding], dict[str, AgentCard]]:
    """Ask planner, composer and every agent, all at once, within a bounded time.

    Returns:
        What was found; and the cards of the agents that answered, by configured name.
    """
    findings, signer = _signer(deployment)
    files, found = open_certificates(deployment.tls)
    findings += found
    if files is None and found:
        return findings, {}
    if not deployment.agent_targets:
        findings.append(problem("agents", "none is configured", "Set BOS_GATEWAY_AGENT_TARGETS."))
    cards: dict[str, AgentCard] = {}
    asked = (_ask(each, signer, deployment, files, cards) for each in _services(deployment))
    for found in await asyncio.gather(*asked):
        findings += found
    if deployment.local is not None:
        findings += await _ask_gateway(deployment.local, deployment.remedy, cards)
    return findings, cards


def _signer(deployment: Deployment) -> tuple[list[Finding], RunTokenSigner | None]:
    if deployment.local is not None:
        return [], None
    key, file = deployment.run_token_private_key, deployment.run_token_private_keys_file
    if key is None and file is None:
        text = "no key is set; services cannot tell the gateway from others"
        advice = (
            "Fine on one machine. Else set BOS_GATEWAY_RUN_TOKEN_PRIVATE_KEY, and "
            "BOS_AUTH_RUN_TOKEN_PUBLIC_KEYS of the services."
        )
        return [warning("run tokens", text, advice)], None
    try:
        if file is not None:
            signer = RunTokenSigner(signing_keys_file(file, FILE_VARIABLE))
        else:
            signer = RunTokenSigner(key.get_secret_value() if key else "")
    except errors.ConfigurationError as error:
        advice = f"Correct {FILE_VARIABLE if file else 'BOS_GATEWAY_RUN_TOKEN_PRIVATE_KEY'}."
        return [problem("run tokens", error.message, advice)], None
    return [ok("run tokens", "the gateway's private key can be used")], signer


async def _ask(
    service: _Service,
    signer: RunTokenSigner | None,
    deployment: Deployment,
    files: CertificateFiles | None,
    cards: dict[str, AgentCard],
) -> list[Finding]:
    shown = []
    if files is not None:
        domain = deployment.tls.trust_domain
        shown = await check_shown(service.name, service.target, files, domain)
    async with _channel(service.target, files) as channel:
        health = await _health(channel, service, deployment.remedy)
        if health.advice or deployment.local is not None:
            return [*shown, health]
        found = [*shown, health, await _signed(channel, service, signer, cards)]
        if signer is not None:
            with contextlib.suppress(errors.BosError):  # which is as it should be
                await _call(channel, service)
                advice = "Set BOS_AUTH_RUN_TOKEN_PUBLIC_KEYS of this service."
                found.append(warning(service.name, "answers also without a run token", advice))
        return found


def _channel(target: str, files: CertificateFiles | None) -> grpc.aio.Channel:
    if files is None:
        return grpc.aio.insecure_channel(target)
    return grpc.aio.secure_channel(target, channel_credentials(files.current()))


async def _signed(
    channel: grpc.aio.Channel,
    service: _Service,
    signer: RunTokenSigner | None,
    cards: dict[str, AgentCard],
) -> Finding:
    """Call as the gateway does, by a token that proves keys and clock at once."""
    token = signer.mint("bos doctor", "", "", [service.name], _TOKEN_S) if signer else None
    try:
        card = await _call(channel, service, token)
    except errors.Unauthenticated as error:
        return _refused(service, error, signed=signer is not None)
    except errors.BosError as error:
        text = f"is serving, but fails a call ({error.code.name}, {error.reason})"
        return problem(service.name, text, "See its log.")
    if card is not None:
        cards[service.name] = card
    if signer is None:
        return ok(service.name, "answers a call")
    return ok(service.name, f"accepts the gateway's run token; its clock is within {_SKEW}")


def _refused(service: _Service, error: errors.Unauthenticated, *, signed: bool) -> Finding:
    if not signed:
        text = "asks for a run token, and no usable key is set"
        advice = "Set BOS_GATEWAY_RUN_TOKEN_PRIVATE_KEY to the key that belongs to its public one."
    elif error.reason == "RUN_TOKEN_EXPIRED":
        text = f"takes a fresh run token for expired: its clock is ahead by over {_SKEW}"
        advice = "Synchronise the clocks of both machines (NTP)."
    else:
        text = "refuses the gateway's run token"
        advice = (
            "Add the public key of BOS_GATEWAY_RUN_TOKEN_PRIVATE_KEY to its "
            f"BOS_AUTH_RUN_TOKEN_PUBLIC_KEYS; or its clock is behind by over {_SKEW}."
        )
    return problem(service.name, text, advice)


async def _call(
    channel: grpc.aio.Channel, service: _Service, token: str | None = None
) -> AgentCard | None:
    metadata = ((RUN_TOKEN_KEY, token),) if token else ()
    try:
        with translate_rpc_errors():
            return await service.call(channel, timeout=_CALL_S, metadata=metadata)
    except errors.InvalidArgument:
        return None


async def _health(channel: grpc.aio.Channel, service: _Service, remedy: str) -> Finding:
    what = f"{service.name} at {service.target}"
    request = health_pb2.HealthCheckRequest(service=service.offers)
    try:
        with translate_rpc_errors():
            answer = await health_pb2_grpc.HealthStub(channel).Check(request, timeout=_CALL_S)
    except (errors.NotFound, errors.Unimplemented):
        advice = f"Correct {service.variable}: something else listens there."
        return problem(service.name, f"{what} does not offer {service.offers}", advice)
    except errors.BosError as error:
        advice = f"{remedy}, or correct {service.variable}."
        return problem(service.name, f"{what} does not answer ({error.code.name})", advice)
    if answer.status != health_pb2.HealthCheckResponse.SERVING:
        return problem(service.name, f"{what} is not serving", "It starts or ends; see its log.")
    return ok(service.name, f"{what} is serving")


async def _ask_gateway(
    local: Connection, remedy: str, cards: dict[str, AgentCard]
) -> list[Finding]:
    """Have the gateway of a standalone say how it gets on with its agents.

    The key of its run tokens never leaves its process, so only it can ask them.
    """
    try:
        async with BosClient(local.target, api_key=local.api_key, timeout_s=_CALL_S) as bos:
            agents = await bos.agents()
    except ClientError as error:
        text = f"gateway at {local.target} does not answer ({error.code.name})"
        return [problem("gateway", text, f"{remedy}.")]
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
