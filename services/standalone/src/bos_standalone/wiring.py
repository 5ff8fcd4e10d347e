"""Start order of services by their dependencies (topological sort)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any

from bos_errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bos_standalone.group import ServiceGroup

Start = Callable[[], AbstractAsyncContextManager[Any]]
Running = Mapping[str, Any]
"""Running services by the names of their rows; rows that are not wanted are missing."""


@dataclass(frozen=True, slots=True)
class Row:
    """One service, or another resource that services depend on."""

    name: str
    start: Callable[[Running], Start]
    """Loads the settings and returns how to start it; called once its needs run."""
    needs: Collection[str] = ()
    """Rows that run before it starts and until it has ended; those not wanted are left out."""
    shown: str = ""
    """Attribute of the running service that is displayed as its address; empty: none."""
    wanted: bool = True
    """Whether this start includes it."""


def start_order(rows: Sequence[Row]) -> list[list[Row]]:
    """Start order of the wanted rows: groups that start concurrently, one after another.

    Raises:
        ConfigurationError: two rows have one name, a need is not in the table, or needs make a
            circle.
    """
    named = {row.name: row for row in rows}
    if len(named) != len(rows):
        names = [row.name for row in rows]
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ConfigurationError(f"The table of services has {', '.join(twice)} more than once.")
    for row in rows:
        if unknown := sorted(set(row.needs) - named.keys()):
            raise ConfigurationError(
                f"{row.name} needs {', '.join(unknown)}, which the table of services lacks."
            )
    wanted = {name: row for name, row in named.items() if row.wanted}
    sorter = TopologicalSorter(
        {name: [need for need in row.needs if need in wanted] for name, row in wanted.items()}
    )
    try:
        sorter.prepare()
    except CycleError as error:
        circle = " -> ".join(reversed(error.args[1]))
        raise ConfigurationError(
            f"Services need one another in a circle, so none can start first: {circle}. One of "
            "them has to look the other up when it is called."
        ) from None
    order = []
    while sorter.is_active():
        ready = sorter.get_ready()
        order.append([row for row in wanted.values() if row.name in ready])
        sorter.done(*ready)
    return order


async def start_all(rows: Sequence[Row], group: ServiceGroup, running: dict[str, Any]) -> None:
    """Start the wanted rows in the order of their needs, and add each to ``running``.

    The group stops them in reverse order.

    Raises:
        ConfigurationError: see :func:`start_order`, or settings are wrong.
        ServiceNotStarted: a service failed to start; names it.
    """
    for side_by_side in start_order(rows):
        made = {row.name: row.start(running) for row in side_by_side}
        running.update(zip(made, await group.start(**made), strict=True))
