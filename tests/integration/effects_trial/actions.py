"""What is asked for in a trial, and what is to go wrong with it; all of it drawn from a seed."""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["ticket", "note", "file", "mail"]
KINDS: tuple[Kind, ...] = ("ticket", "note", "file", "mail")
"""A REST service that takes keys, one that does not, files of a workspace, a mail server."""
ASKABLE: frozenset[Kind] = frozenset({"ticket", "file"})
"""The other side knows the key, or can be asked: exactly once, and never unknown."""

Person = Literal["approves", "denies", "never answers", "sees another action"]
Moment = Literal["proposed", "approved", "request", "reply"]
MOMENTS: tuple[Moment, ...] = ("proposed", "approved", "request", "reply")
Victim = Literal["gateways", "agent", "connection"]
VICTIMS: tuple[Victim, ...] = ("gateways", "agent", "connection")

_LABEL = re.compile(r"trial-\d+-end")
_SHARE_KILLED = 0.6
_CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Kill:
    moment: Moment
    victim: Victim


@dataclass(frozen=True, slots=True)
class Action:
    number: int
    kind: Kind
    person: Person
    kill: Kill | None

    @property
    def label(self) -> str:
        return f"trial-{self.number}-end"

    @property
    def changed(self) -> str:
        """The label that was never approved."""
        return f"{_CHANGED}-{self.number}-end"


def draw(count: int, seed: int) -> Sequence[Action]:
    """``count`` actions that are approved, and some of each other sort."""
    chance = random.Random(seed)
    others = max(1, count // 20)
    people: list[Person] = ["approves"] * count
    people += ["denies"] * others + ["never answers"] * others + ["sees another action"] * others
    pairs = [Kill(moment, victim) for moment in MOMENTS for victim in VICTIMS]
    # Of a few actions, too, something is killed while it is up.
    kills: list[Kill | None] = [Kill("proposed", "gateways"), Kill("approved", "agent")]
    while len(kills) < count:
        kills.append(chance.choice(pairs) if chance.random() < _SHARE_KILLED else None)
    # What was changed is to be refused by its agent, and not to be lost before.
    kills = [*kills[:count], *[None] * (len(people) - count)]
    drawn = [
        (KINDS[number % len(KINDS)], person, kill)
        for number, (person, kill) in enumerate(zip(people, kills, strict=True))
    ]
    chance.shuffle(drawn)
    return [Action(number, *each) for number, each in enumerate(drawn)]


class Planner:
    """The model of the trial: it plans the one step of each question, and words results.

    Args:
        actions: What is asked for.
        customer: Registered name of a customer of the company.
    """

    def __init__(self, actions: Sequence[Action], customer: str) -> None:
        self._actions = {each.label: each for each in actions}
        self._customer = customer

    def say(self, schema: str | None, prompt: str) -> str | dict[str, Any] | None:
        if schema == "PlannerReply":
            (label,) = set(_LABEL.findall(prompt))
            step = self._step(self._actions[label])
            return {
                "rationale": "As asked.",
                "intent": "DATA_QA",
                "confidence": 0.9,
                "steps": [step],
            }
        words = {"MailSummary": {"result": "Done."}, "ApiSummary": {"answer": "Done."}}
        return words.get(schema or "", "Done.")

    def _step(self, action: Action) -> Mapping[str, Any]:
        agent, tool, inputs = _CALLS[action.kind]
        given = {
            name: value.replace("LABEL", action.label).replace("CUSTOMER", self._customer)
            for name, value in inputs.items()
        }
        return {
            "step_id": "act",
            "agent": agent,
            "tool_name": tool,
            "task": f"Do {action.label}",
            "sub_task_input": [{"name": name, "value": each} for name, each in given.items()],
        }


AGENTS: Mapping[Kind, str] = {
    "ticket": "api_docs",
    "note": "api_docs",
    "file": "files",
    "mail": "mail",
}
_TICKET = '{"customer": "CUSTOMER", "topic": "delivery", "text": "LABEL"}'
_CALLS: Mapping[Kind, tuple[str, str, Mapping[str, str]]] = {
    "ticket": (
        "api_docs",
        "call_api_write",
        {"api": "company", "method": "POST", "path": "/v1/tickets", "json_body": _TICKET},
    ),
    "note": (
        "api_docs",
        "call_api_write",
        {"api": "notes", "method": "POST", "path": "/notes", "json_body": '{"text": "LABEL"}'},
    ),
    "file": ("files", "delete_file", {"name": "LABEL.txt"}),
    "mail": (
        "mail",
        "send_email",
        {"to": "max@example.com", "subject": "LABEL", "body": "Dear Max,\n\nAda"},
    ),
}
