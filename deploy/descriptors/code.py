"""What Python services know at run time of agents that may not be installed beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from descriptors.descriptor import Services


def aliases(services: Services) -> str:
    """Names of all agents for bos_plans, each with its other names."""
    return _dict(
        "_ALIASES: Mapping[str, tuple[str, ...]]",
        {each.name: each.aliases for each in services.agents},
    )


def grants(services: Services) -> str:
    """What the gateway of a standalone gives to steps of each agent."""
    audiences = {each.name: services.audiences(each) for each in services.agents}
    connections = {each.name: each.connections for each in services.agents}
    return "\n".join(
        _dict(f"{name}: Mapping[str, tuple[str, ...]]", {k: v for k, v in found.items() if v})
        for name, found in (("AUDIENCES", audiences), ("CONNECTIONS", connections))
    )


def _dict(target: str, found: Mapping[str, Sequence[str]]) -> str:
    """An assignment as ruff formats it."""
    lines = [f"{target} = {{"]
    lines += [f'    "{name}": {_tuple(each)},' for name, each in found.items()]
    return "\n".join([*lines, "}"]) + "\n"


def _tuple(found: Sequence[str]) -> str:
    quoted = [f'"{each}"' for each in found]
    return f"({quoted[0]},)" if len(quoted) == 1 else f"({', '.join(quoted)})"
