"""The agent card: what Bos is to agents that call it."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import version

from a2a.types import a2a_pb2 as a2a
from a2a.utils.constants import PROTOCOL_VERSION_1_0, TransportProtocol

from bos.agent.v1 import AgentCard
from bos.gateway.v1 import AgentInfo
from bos_client.text import one_line
from bos_protocols.a2a.messages import JSON_MODE, TEXT_MODE

RPC_PATH = "/a2a"
REST_PREFIX = "/a2a/v1"

_BEARER = "bearer"
_MAX_TEXT_CHARS = 1000
_DESCRIPTION = (
    "Answers questions in plain language from databases, documents, APIs, the web and mail: it "
    "plans, lets specialists work, and composes one answer with its sources. Every change waits "
    "for the user's approval first (input-required)."
)


def agent_card(public_url: str, grpc_address: str) -> a2a.AgentCard:
    """The card for everybody.

    Args:
        public_url: Where the caller reaches Bos.
        grpc_address: Where it reaches the gRPC binding; empty if there is none.
    """
    card = a2a.AgentCard(
        name="Bos",
        description=_DESCRIPTION,
        version=version("bos-protocols"),
        supported_interfaces=[
            _interface(public_url + REST_PREFIX, TransportProtocol.HTTP_JSON),
            _interface(public_url + RPC_PATH, TransportProtocol.JSONRPC),
        ],
        capabilities=a2a.AgentCapabilities(
            streaming=True, push_notifications=False, extended_agent_card=True
        ),
        default_input_modes=[TEXT_MODE, JSON_MODE],
        default_output_modes=[TEXT_MODE, JSON_MODE],
        skills=[_ASKING],
    )
    if grpc_address:
        card.supported_interfaces.append(_interface(grpc_address, TransportProtocol.GRPC))
    card.security_schemes[_BEARER].http_auth_security_scheme.CopyFrom(
        a2a.HTTPAuthSecurityScheme(
            scheme="Bearer", description="An API key or an access token of the user"
        )
    )
    card.security_requirements.add().schemes[_BEARER].SetInParent()
    return card


def extended_card(card: a2a.AgentCard, agents: Iterable[AgentInfo]) -> a2a.AgentCard:
    """The card for a caller, with the specialists that work for it."""
    card.skills.extend(_skill(info.card) for info in agents if info.available)
    return card


def _interface(url: str, binding: TransportProtocol) -> a2a.AgentInterface:
    return a2a.AgentInterface(
        url=url, protocol_binding=binding.value, protocol_version=PROTOCOL_VERSION_1_0
    )


def _skill(card: AgentCard) -> a2a.AgentSkill:
    return a2a.AgentSkill(
        id=card.name,
        name=card.name,
        description=one_line(card.description, _MAX_TEXT_CHARS),
        tags=list(card.capabilities) or [card.name],
        examples=list(card.typical_use_cases),
    )


_ASKING = a2a.AgentSkill(
    id="ask",
    name="Answer a question",
    description="Plans, has specialists work, and answers with table, files and sources.",
    tags=["question answering", "analysis", "sql", "documents", "web"],
    examples=["Which customers brought the most revenue last quarter?"],
)
