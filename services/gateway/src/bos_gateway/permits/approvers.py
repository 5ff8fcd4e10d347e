"""Approvers of a request: roles, groups, four eyes. Pure.

What an operator has configured for a tool is fixed into the request when it is made, so that every
replica, and every reader of the log later, judges an answer alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Self

from attrs import frozen
from pydantic import BaseModel, ConfigDict, Field, model_validator

from bos.agent.v1 import ProposedAction
from bos.gateway.v1 import Approval, Approvers
from bos_chassis.auth.callers import Principal
from bos_chassis.auth.roles import require_role
from bos_chassis.names import MAX_NAMES, ROLES, USER, GroupName, Role
from bos_errors import PermissionDenied

SEPARATOR = "\x1f"
"""Between names in one text: no name of a role or group holds it, for it is not printable."""


class ApproverRule(BaseModel):
    """Who may answer requests about a tool, beside the user who asked the question."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    roles: tuple[Role, ...] = Field(default=(), description="Everybody who has one of these roles")
    groups: tuple[GroupName, ...] = Field(
        default=(), max_length=MAX_NAMES, description="Everybody who is in one of these groups"
    )
    four_eyes: bool = Field(
        default=False, description="The user who asked the question may deny, and not approve"
    )

    @model_validator(mode="after")
    def _has_approver(self) -> Self:
        if self.four_eyes and not (self.roles or self.groups):
            raise ValueError("four_eyes needs roles or groups: without any, no user could approve")
        return self


def approvers_for(
    rules: Mapping[str, ApproverRule], agent: str, actions: Iterable[ProposedAction]
) -> Approvers | None:
    """Approvers of a request about these actions of an agent; None for the asker alone.

    Of several rules that fit a tool the one that says most counts. Of actions under several rules
    only those may answer whom every rule names, and four eyes are asked for if one rule asks;
    actions without a rule change nothing about that.
    """
    tools = {action.tool for action in actions}
    named = (_rule_for(rules, f"{agent}.{tool}") for tool in tools)
    found = [rule for rule in named if rule is not None]
    if not found:
        return None
    roles = frozenset.intersection(*(frozenset[str](rule.roles) for rule in found))
    groups = frozenset.intersection(*(frozenset(rule.groups) for rule in found))
    four_eyes = any(rule.four_eyes for rule in found)
    if not (roles or groups or four_eyes):
        return None
    return Approvers(roles=sorted(roles), groups=sorted(groups), four_eyes=four_eyes)


def _rule_for(rules: Mapping[str, ApproverRule], tool: str) -> ApproverRule | None:
    fitting = [
        pattern
        for pattern in rules
        if pattern == tool or (pattern.endswith("*") and tool.startswith(pattern[:-1]))
    ]
    # A name says more than any beginning, and a long beginning more than a short one.
    best = max(fitting, key=lambda each: (each == tool, len(each)), default=None)
    return None if best is None else rules[best]


@frozen
class Answerer:
    """User who reads or decides approval requests, with current roles and groups."""

    user_id: str
    roles: frozenset[str] = frozenset(ROLES)
    """Where authentication is off, no caller lacks any."""
    groups: frozenset[str] = frozenset()
    principal: Principal | None = None

    @property
    def names(self) -> list[str]:
        """Roles and groups as :func:`names_of` has them."""
        return [
            *(f"role:{each}" for each in self.roles),
            *(f"group:{each}" for each in self.groups),
        ]

    def check(self, approval: Approval, *, approve: bool) -> None:
        """Refuse a decision by a caller who may see the request and not decide it.

        Raises:
            PermissionDenied: it asked the question itself and four eyes are asked for, or may not
                ask questions any more; or it is none of the approvers.
        """
        approvers = approval.approvers
        if self.user_id != approval.user_id:
            if not set(self.names) & set(names_of(approvers)):
                raise PermissionDenied(
                    "This request is for others to answer.", reason="NOT_AN_APPROVER"
                )
            return
        if not approve:
            return
        require_role(self.principal, USER)
        if approvers.four_eyes:
            who = ", ".join([*approvers.roles, *approvers.groups]) or "no user at present"
            raise PermissionDenied(
                "Another user must approve what you asked for yourself; you may deny it. "
                f"Who may approve it: {who}.",
                reason="FOUR_EYES",
            )


def names_of(approvers: Approvers) -> list[str]:
    """Roles and groups of approvers, as the store compares them with those of a caller."""
    return [
        *(f"role:{each}" for each in approvers.roles),
        *(f"group:{each}" for each in approvers.groups),
    ]


def approvers_named(names: Iterable[str]) -> Approvers:
    """The approvers whose :func:`names_of` these are."""
    parts = [name.partition(":") for name in names]
    return Approvers(
        roles=[name for kind, _, name in parts if kind == "role"],
        groups=[name for kind, _, name in parts if kind == "group"],
    )
