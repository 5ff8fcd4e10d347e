"""Picture and tables of the page of services."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from descriptors.descriptor import Descriptor, Services


def picture(services: Services) -> str:
    """Who calls whom, as Mermaid draws it."""
    lines = ["```mermaid", "flowchart LR"]
    lines += [f"  {each.name}" for each in services.all if not each.is_agent]
    lines.append("  subgraph agents")
    lines += [f"    {each.name}" for each in services.agents]
    lines.append("  end")
    for each in services.all:
        lines += [f"  {each.name} --> {called}" for called in sorted(each.all_calls)]
        if each.calls_agents:
            lines.append(f"  {each.name} --> agents")
        if each.calls_account_data:
            held = [other.name for other in services.all if other.account_data]
            lines += [f"  {each.name} -.-> {other}" for other in held]
    return "\n".join([*lines, "```"]) + "\n"


def tables(services: Services) -> str:
    """What each service does, holds, is called by and reaches."""
    head = (
        "| {} | Does | Holds | Called with | Calls | Reaches outside |\n|---|---|---|---|---|---|\n"
    )
    others = [each for each in services.all if not each.is_agent]
    return "\n".join(
        head.format(title) + "".join(_row(each) for each in found)
        for title, found in (("Service", others), ("Agent", services.agents))
    )


def _row(service: Descriptor) -> str:
    calls = [f"`{name}`" for name in sorted(service.all_calls)]
    if service.calls_agents:
        calls.append("agents")
    if service.calls_account_data:
        calls.append("what holds account data")
    holds = [service.holds] if service.holds else []
    if service.store:
        holds.append(f"PostgreSQL schema `{service.name}`")
    outside = [*(["model"] if service.models else []), *service.egress]
    cells = (
        f"[`{service.name}`](../../{service.folder})",
        service.description,
        ", ".join(holds),
        ", ".join(_CREDENTIALS[each] for each in service.callers),
        ", ".join(calls),
        ", ".join(outside),
    )
    return f"| {' | '.join(cells)} |\n"


_CREDENTIALS = {
    "users": "users' credentials",
    "gateway": "run tokens of the gateway",
    "steps": "run tokens of steps",
}
