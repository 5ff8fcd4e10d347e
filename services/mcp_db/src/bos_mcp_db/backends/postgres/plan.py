"""Bytes that aggregates of a query hold at once, by the plan of its query for estimates. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bos_sqlguard import Kept

    Plan = Mapping[str, Any]

_KEEPING = re.compile(r"\b(?:string|array|jsonb?|jsonb?_object)_agg\(")
_JSON = "json"
# What each value takes besides its bytes, and how often JSON repeats names and quotes.
_VALUE_BYTES = 16.0
_JSON_COPIES = 2.0


def kept_bytes(plan: Plan, kept: Kept) -> float:
    """What all steps of the plan hold together.

    Args:
        plan: of ``kept.query``, from ``EXPLAIN (FORMAT JSON, VERBOSE)``.
        kept: what the guard knows of the query.
    """
    return sum(_held(node, kept) for node in _nodes(plan))


def _held(node: Plan, kept: Kept) -> float:
    """What a step holds of the rows that come in, or that a list is made of."""
    calls = _KEEPING.findall(" ".join([*node.get("Output", ()), node.get("Filter", "")]))
    held = 0.0
    for inner in node.get("Plans", ()):
        if inner.get("Parent Relationship") == "Outer":
            copies = sum(_JSON_COPIES if call.startswith(_JSON) else 1.0 for call in calls)
            held += copies * _of_rows(inner, kept)
    name = node.get("Subplan Name", "")
    if kept.lists and name and not name.startswith("CTE "):
        held = max(held, _of_rows(node, kept))
    return held


def _of_rows(node: Plan, kept: Kept) -> float:
    row = _VALUE_BYTES + kept.row_bytes + kept.copies * max(1.0, float(node["Plan Width"]))
    return float(node["Plan Rows"]) * row


def _nodes(plan: Plan) -> Iterator[Plan]:
    stack = [plan]
    while stack:
        node = stack.pop()
        yield node
        stack += node.get("Plans", ())
