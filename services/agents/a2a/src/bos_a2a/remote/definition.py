"""Card of a remote agent as Bos takes it: words made plain, one interface, a digest."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass

from a2a.types import a2a_pb2 as a2a
from a2a.utils.constants import TransportProtocol

from bos_a2a.settings import A2aServer
from bos_agentkit.foreign import plain_text

_BINDINGS = (TransportProtocol.JSONRPC.value, TransportProtocol.HTTP_JSON.value)
_VERSION = re.compile(r"1(\.[0-9]{1,4}){0,2}")
_TENANT = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_MAX_URL = 2_000
_MAX_DESCRIPTION = 400
_MAX_SKILLS = 20
_MAX_SKILL = 200
_MAX_EXAMPLES = 10
_MAX_EXAMPLE = 200
_MAX_MODES = 100


class UnusableCard(ValueError):
    """A remote agent that cannot be called; the text says why, without its words."""


@dataclass(frozen=True, slots=True)
class Definition:
    """What a remote agent says of itself, and where it takes messages."""

    description: str = ""
    """In its words, made plain."""
    skills: tuple[str, ...] = ()
    """Names with descriptions, likewise."""
    examples: tuple[str, ...] = ()
    """Of what it can be asked, likewise."""
    url: str = ""
    """Where messages go."""
    binding: str = ""
    tenant: str = ""
    streaming: bool = False
    digest: str = ""
    """"sha256:" and the hex digest of all that it says of itself and of where it is."""

    @property
    def card(self) -> a2a.AgentCard:
        """Card for the SDK, with the one interface that is used."""
        return a2a.AgentCard(
            name="remote",
            capabilities=a2a.AgentCapabilities(streaming=self.streaming),
            supported_interfaces=[
                a2a.AgentInterface(
                    url=self.url,
                    protocol_binding=self.binding,
                    protocol_version="1.0",
                    tenant=self.tenant,
                )
            ],
        )


def definition_of(card: a2a.AgentCard, server: A2aServer) -> Definition:
    """The definition that a card gives.

    Raises:
        UnusableCard: it names no interface that can be used, or needs what Bos does not do.
    """
    interface = _interface(card, server)
    if any(extension.required for extension in card.capabilities.extensions):
        raise UnusableCard("needs an extension of the protocol")
    modes = list(card.default_input_modes)[:_MAX_MODES]
    if modes and not any(mode == "*/*" or mode.lower().startswith("text/") for mode in modes):
        raise UnusableCard("takes no text")
    skills = [
        ": ".join(filter(None, (plain_text(each.name, 60), plain_text(each.description, 120))))
        for each in card.skills[:_MAX_SKILLS]
    ]
    examples = [
        plain_text(example, _MAX_EXAMPLE)
        for skill in card.skills[:_MAX_SKILLS]
        for example in skill.examples[:_MAX_EXAMPLES]
    ]
    return Definition(
        description=plain_text(card.description, _MAX_DESCRIPTION),
        skills=tuple(text[:_MAX_SKILL] for text in skills if text),
        examples=tuple(dict.fromkeys(filter(None, examples)))[:_MAX_EXAMPLES],
        url=interface.url,
        binding=interface.protocol_binding,
        tenant=interface.tenant,
        streaming=card.capabilities.streaming,
        digest=_digest(card, interface),
    )


def _interface(card: a2a.AgentCard, server: A2aServer) -> a2a.AgentInterface:
    """The first interface, in the agent's order, that can be used."""
    spoken = [
        each
        for each in card.supported_interfaces
        if each.protocol_binding in _BINDINGS and _VERSION.fullmatch(each.protocol_version)
    ]
    if not spoken:
        raise UnusableCard("offers neither JSON-RPC nor HTTP+JSON of A2A 1")
    near = [each for each in spoken if _is_near(each.url, server)]
    if not near:
        # Credentials and messages go to the origin that the operator configured.
        raise UnusableCard("takes messages at another origin than that of its url")
    found = near[0]
    if found.tenant and not _TENANT.fullmatch(found.tenant):
        raise UnusableCard("names a tenant that cannot be part of an address")
    return found


def _is_near(url: str, server: A2aServer) -> bool:
    return len(url) <= _MAX_URL and server.is_origin_of(url)


def _digest(card: a2a.AgentCard, interface: a2a.AgentInterface) -> str:
    skills = [
        [each.id, each.name, each.description, *each.tags, *each.examples] for each in card.skills
    ]
    where = [interface.url, interface.protocol_binding, interface.tenant]
    said = json.dumps([card.name, card.description, skills, where])
    return f"sha256:{hashlib.sha256(said.encode()).hexdigest()}"
