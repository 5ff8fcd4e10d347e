"""Checks of the agents' cards, of all that planner and gateway take for granted about them."""

from __future__ import annotations

from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import protovalidate
from google.protobuf.json_format import MessageToDict

from bos.agent.v1 import SideEffectClass
from bos_gateway.operator.commands.findings import Finding, ok, problem, warning
from bos_gateway.permits.audiences import DEFAULT, NEVER, refused
from bos_gateway.permits.connections import granted_kinds, refused_kinds
from bos_plans import shared_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bos.agent.v1 import AgentCard
    from bos_gateway.permits.audiences import Audiences
    from bos_gateway.permits.connections import Kinds

_USERS_CONNECTIONS: Final = "connections of users"
_FIX: Final = "Correct the card in the agent's code."


def check_cards(
    cards: Mapping[str, AgentCard],
    fallback_agent: str,
    run_timeout_s: float,
    audiences: Audiences = DEFAULT,
    connections: Kinds = MappingProxyType({}),
) -> list[Finding]:
    """Findings about the cards, by configured name; one line if nothing is wrong."""
    found = list(_shared_names(cards))
    for name, card in sorted(cards.items()):
        found += _card(name, card, run_timeout_s)
        found += _asks_for_too_much(name, card, audiences)
        found += _asks_for_connections(name, card, connections)
    if cards and fallback_agent not in {card.name for card in cards.values()}:
        text = f'the agent that stands in for others, "{fallback_agent}", is not there'
        found.append(warning("cards", text, "Set BOS_GATEWAY_FALLBACK_AGENT to one that is."))
    if found or not cards:
        return found
    tools = sum(len(card.tools) for card in cards.values())
    return [ok("cards", f"{len(cards)} card(s) with {tools} tool(s) are sane")]


def check_connections(cards: Mapping[str, AgentCard], allowed: Kinds) -> list[Finding]:
    """Users' connections granted to agents, and unused permissions."""
    found = []
    for name, card in sorted(cards.items()):
        if kinds := granted_kinds(card, name, allowed):
            text = f"{name} is given those of a user of the kinds {', '.join(kinds)}"
            found.append(ok(_USERS_CONNECTIONS, text))
        if vain := sorted(set(allowed.get(name, ())) - set(card.connection_kinds)):
            text = f"{name} may have {', '.join(vain)}, and its card does not ask for that"
            advice = "Take it out of BOS_GATEWAY_AGENT_CONNECTIONS, or correct the card."
            found.append(warning(_USERS_CONNECTIONS, text, advice))
    return found


def _shared_names(cards: Mapping[str, AgentCard]) -> Iterator[Finding]:
    for name, agents in sorted(shared_names(cards.values()).items()):
        text = f'several agents are called "{name}" (names and aliases): {", ".join(agents)}'
        yield problem("cards", text, "Let only one agent have it.")


def _card(name: str, card: AgentCard, run_timeout_s: float) -> Iterator[Finding]:
    where = f"card of {name}"
    if card.name != name:
        text = f'the agent calls itself "{card.name}"'
        yield problem(where, text, "Use that name in BOS_GATEWAY_AGENT_TARGETS.")
    for violation in protovalidate.collect_violations(card):
        path = violation.proto.field
        at = ".".join(element.field_name for element in path.elements) if path else "card"
        yield problem(where, f"{at}: {violation.proto.message}", _FIX)
    if card.selection_group < 0:
        yield problem(where, "its selection group is negative", _FIX)
    if not card.keywords:
        text = "it has no keywords, so it is never chosen when no model plans"
        yield warning(where, text, _FIX)
    for tool, times in Counter(tool.name for tool in card.tools).items():
        if times > 1:
            yield problem(where, f'several tools are called "{tool}"', _FIX)
    for each in card.tools:
        if wrong := _schema_problem(MessageToDict(each.input_schema)):
            yield problem(where, f"the schema of tool {each.name} {wrong}", _FIX)
        if each.side_effect == SideEffectClass.SIDE_EFFECT_CLASS_UNSPECIFIED:
            text = f"tool {each.name} does not say what it changes; it is treated as irreversible"
            yield warning(where, text, _FIX)
    if card.default_timeout.ToMilliseconds() / 1000 > run_timeout_s:
        text = f"one attempt may take longer than a whole run ({run_timeout_s:g} s)"
        advice = "Raise BOS_GATEWAY_RUN_TIMEOUT_S, or lower the card's time-out."
        yield warning(where, text, advice)


def _asks_for_too_much(name: str, card: AgentCard, audiences: Audiences) -> Iterator[Finding]:
    where, beyond = f"card of {name}", refused(card, name, audiences)
    if forbidden := [each for each in beyond if each.casefold() in NEVER]:
        text = f"it asks to call {', '.join(forbidden)} for its steps, which no agent may"
        yield warning(where, text, "Find out why, if the agent is not yours; correct the card.")
    if beyond := [each for each in beyond if each not in forbidden]:
        text = f"it asks to call {', '.join(beyond)} for its steps, and may not"
        advice = "Allow it in BOS_GATEWAY_AGENT_AUDIENCES, or correct the card."
        yield warning(where, text, advice)


def _asks_for_connections(name: str, card: AgentCard, allowed: Kinds) -> Iterator[Finding]:
    if beyond := refused_kinds(card, name, allowed):
        text = f"it asks for users' connections ({', '.join(beyond)}), and gets none of these"
        advice = "Allow them in BOS_GATEWAY_AGENT_CONNECTIONS, or correct the card."
        yield warning(f"card of {name}", text, advice)


def _schema_problem(schema: dict[str, Any]) -> str:
    """What keeps it from being a JSON schema of named arguments; empty if nothing."""
    if not schema:
        return "is missing"
    properties = schema.get("properties", {})
    if schema.get("type") != "object" or not isinstance(properties, dict):
        return 'is not of type "object" with properties'
    if wrong := sorted(n for n, each in properties.items() if not isinstance(each, dict | bool)):
        return f"describes {', '.join(wrong)} by something else than a schema"
    required = schema.get("required", [])
    if not isinstance(required, list):
        return "has no list of required arguments"
    if unknown := sorted(str(name) for name in required if name not in properties):
        return f"requires {', '.join(unknown)}, which it does not describe"
    return ""
