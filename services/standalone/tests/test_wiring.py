"""Start order of services by their dependencies."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bos_chassis.telemetry import Telemetry
from bos_errors import ConfigurationError
from bos_standalone.group import ServiceGroup, ServiceNotStarted
from bos_standalone.wiring import Row, Running, Start, start_all, start_order


class Diary:
    """Makes rows whose services record when they start and stop, and what ran before them."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.seen: dict[str, set[str]] = {}

    def row(self, name: str, *needs: str, fails: bool = False, **more: Any) -> Row:
        @asynccontextmanager
        async def serve() -> AsyncIterator[str]:
            if fails:
                raise ConfigurationError("no port")
            self.lines.append(f"{name} begins")
            yield name
            self.lines.append(f"{name} ends")

        def start(running: Running) -> Start:
            self.seen[name] = set(running)
            return serve

        return Row(name, start, needs, **more)

    async def run(self, *rows: Row) -> dict[str, Any]:
        running: dict[str, Any] = {}
        async with ServiceGroup(Telemetry.for_tests().logger("test")) as group:
            await start_all(rows, group, running)
        return running


def names(*rows: Row) -> list[list[str]]:
    return [[row.name for row in group] for group in start_order(rows)]


async def test_services_start_after_their_needs_and_stop_in_reverse() -> None:
    diary = Diary()
    rows = [diary.row("c", "b"), diary.row("b", "a"), diary.row("a"), diary.row("d", "a")]
    running = await diary.run(*rows)

    assert running == {"a": "a", "b": "b", "c": "c", "d": "d"}
    assert diary.lines[:1] == ["a begins"]
    assert diary.lines[3:5] == ["c begins", "c ends"]
    assert diary.lines[-1] == "a ends"
    assert diary.seen == {"a": set(), "b": {"a"}, "d": {"a"}, "c": {"a", "b", "d"}}


def test_rows_that_start_together_keep_the_order_of_the_table() -> None:
    row = Diary().row
    assert names(row("z"), row("m", "z"), row("b"), row("a", "b")) == [["z", "b"], ["m", "a"]]


def test_unwanted_rows_are_left_out_and_not_waited_for() -> None:
    row = Diary().row
    assert names(row("a", "b"), row("b", "c", wanted=False), row("c")) == [["a", "c"]]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([("a", "b"), ("b", "a")], r"circle.*(a -> b -> a|b -> a -> b)"),
        ([("a", "a")], r"circle.*a -> a"),
        ([("x",), ("a", "c"), ("b", "a"), ("c", "b")], r"circle.*( -> [abc]){3}"),
        ([("a", "nowhere")], "a needs nowhere, which the table of services lacks"),
        ([("a",), ("b",), ("a",)], "has a more than once"),
    ],
)
def test_error_for_a_table_without_a_start_order_says_why(rows: list[Any], says: str) -> None:
    row = Diary().row
    with pytest.raises(ConfigurationError, match=says):
        start_order([row(*each) for each in rows])


async def test_failed_start_of_a_service_stops_those_it_needs() -> None:
    diary = Diary()
    with pytest.raises(ServiceNotStarted, match="b could not be started: no port"):
        await diary.run(diary.row("c", "b"), diary.row("b", "a", fails=True), diary.row("a"))
    assert diary.lines == ["a begins", "a ends"]
