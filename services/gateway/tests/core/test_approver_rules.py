"""Which rule says who answers for an action beside the asker."""

from collections.abc import Iterable
from typing import Any

from bos.agent.v1 import ProposedAction
from bos_gateway.permits.approvers import ApproverRule, approvers_for


def of(rules: dict[str, Any], *tools: str) -> tuple[list[str], list[str], bool] | None:
    made = {name: ApproverRule.model_validate(rule) for name, rule in rules.items()}
    actions: Iterable[ProposedAction] = [ProposedAction(tool=tool) for tool in tools]
    found = approvers_for(made, "mail", actions)
    return None if found is None else (list(found.roles), list(found.groups), found.four_eyes)


def test_most_specific_rule_counts_and_tools_need_all_of_theirs() -> None:
    rules = {
        "*": {"roles": ["operator"]},
        "mail.*": {"roles": ["approver"], "groups": ["office", "finance"]},
        "mail.send": {"groups": ["finance"], "four_eyes": True},
        "mail.read": {},
    }
    assert of(rules, "send") == ([], ["finance"], True)
    assert of(rules, "draft") == (["approver"], ["finance", "office"], False)
    assert of(rules, "draft", "send") == ([], ["finance"], True)
    assert of(rules, "read") is None
    assert of(rules, "read", "draft") is None
    assert of(rules, "read", "send") == ([], [], True)
    assert of({"*": {"roles": ["operator"]}}, "send") == (["operator"], [], False)
    assert of({}, "send") is None
    # What no rule is about changes nothing about what others say.
    assert of({"mail.send": rules["mail.send"]}, "draft", "send") == ([], ["finance"], True)
