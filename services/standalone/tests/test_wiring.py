"""Start order of services by their dependencies, and groups of running ones."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from bos_chassis.telemetry import Telemetry
from bos_errors import ConfigurationError
from bos_standalone.group import ServiceGroup, ServiceNotStarted
from bos_standalone.wiring import Row, Running, Start, start_all, start_order


class Diary:
    """Makes services that record when they start and stop, and in which task."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.tasks: dict[str, set[asyncio.Task[object] | None]] = {}

    def service(
        self,
        name: str,
        *,
        needs: asyncio.Event | None = None,
        fails: Exception | None = None,
        ends: asyncio.Event | None = None,
    ) -> Callable[[], AbstractAsyncContextManager[str]]:
        @asynccontextmanager
        async def serve() -> AsyncIterator[str]:
            tasks = self.tasks.setdefault(name, set())
            tasks.add(asyncio.current_task())
            if needs is not None:
                await needs.wait()
            if fails is not None:
                raise fails
            self.lines.append(f"{name} begins")
            try:
                if ends is None:
                    yield name
                else:
                    body = asyncio.current_task()
                    assert body is not None
                    watch = asyncio.create_task(ends.wait())
                    watch.add_done_callback(lambda _: body.cancel())
                    try:
                        yield name
                    except asyncio.CancelledError:
                        raise RuntimeError("broken inside") from None
            finally:
                tasks.add(asyncio.current_task())
                self.lines.append(f"{name} ends")

        return serve


class Table:
    """Makes rows whose services record when they start and stop, and what ran before them."""

    def __init__(self) -> None:
        self.diary = Diary()
        self.seen: dict[str, set[str]] = {}

    def row(self, name: str, *needs: str, **more: Any) -> Row:
        def start(running: Running) -> Start:
            self.seen[name] = set(running)
            return self.diary.service(name)

        return Row(name, start, needs, **more)


def group() -> ServiceGroup:
    return ServiceGroup(Telemetry.for_tests().logger("test"))


def names(*rows: Row) -> list[list[str]]:
    return [[row.name for row in group] for group in start_order(rows)]


async def test_services_start_after_their_needs_and_stop_in_reverse() -> None:
    table, running = Table(), dict[str, Any]()
    rows = [table.row("c", "b"), table.row("b", "a"), table.row("a"), table.row("d", "a")]
    async with group() as services:
        await start_all(rows, services, running)

    lines = table.diary.lines
    assert running == {"a": "a", "b": "b", "c": "c", "d": "d"}
    assert (lines[0], lines[-1]) == ("a begins", "a ends")
    assert lines[3:5] == ["c begins", "c ends"]
    assert table.seen == {"a": set(), "b": {"a"}, "d": {"a"}, "c": {"a", "b", "d"}}
    assert all(len(tasks) == 1 for tasks in table.diary.tasks.values()), "each in its own task"


def test_rows_that_start_together_keep_the_order_of_the_table() -> None:
    row = Table().row
    assert names(row("z"), row("m", "z"), row("b"), row("a", "b")) == [["z", "b"], ["m", "a"]]


def test_unwanted_rows_are_left_out_and_not_waited_for() -> None:
    row = Table().row
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
    row = Table().row
    with pytest.raises(ConfigurationError, match=says):
        start_order([row(*each) for each in rows])


async def test_services_of_one_call_start_concurrently() -> None:
    diary, second_is_up = Diary(), asyncio.Event()

    @asynccontextmanager
    async def second() -> AsyncIterator[str]:
        second_is_up.set()
        yield "second"

    async with group() as services:
        await services.start(first=diary.service("first", needs=second_is_up), second=second)


async def test_service_that_fails_to_start_is_named_and_others_stop() -> None:
    diary = Diary()
    never = asyncio.Event()
    async with group() as services:
        await services.start(good=diary.service("good"))
        with pytest.raises(
            ServiceNotStarted, match="service bad could not be started: no port"
        ) as e:
            await services.start(
                slow=diary.service("slow", needs=never),
                bad=diary.service("bad", fails=ConfigurationError("no port")),
            )
    assert isinstance(e.value.__cause__, ConfigurationError)
    assert diary.lines == ["good begins", "good ends"]


async def test_unexpected_error_shows_its_type_and_no_message() -> None:
    async with group() as services:
        with pytest.raises(ServiceNotStarted, match="not be started: ValueError") as caught:
            await services.start(bad=Diary().service("bad", fails=ValueError("secret")))
    assert "secret" not in caught.value.message


async def test_cancellation_during_the_start_stops_all_services() -> None:
    diary, begun = Diary(), asyncio.Event()

    async def work() -> None:
        async with group() as services:
            await services.start(good=diary.service("good"))
            begun.set()
            await services.start(slow=diary.service("slow", needs=asyncio.Event()))

    task = asyncio.create_task(work())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert diary.lines == ["good begins", "good ends"]


async def test_service_that_exits_by_itself_is_reported() -> None:
    diary, ends = Diary(), asyncio.Event()
    telemetry = Telemetry.for_tests()
    async with ServiceGroup(telemetry.logger("test")) as services:
        await services.start(good=diary.service("good"), weak=diary.service("weak", ends=ends))
        ends.set()
        assert await services.unexpected_end() == "weak"
    assert [entry["name"] for entry in telemetry.logs] == ["weak"]
