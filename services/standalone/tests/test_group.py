import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from bos_chassis.telemetry import Telemetry
from bos_errors import ConfigurationError
from bos_standalone.group import ServiceGroup, ServiceNotStarted


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


def group() -> ServiceGroup:
    return ServiceGroup(Telemetry.for_tests().logger("test"))


async def test_services_stop_in_reverse_order_each_in_its_task() -> None:
    diary = Diary()
    async with group() as services:
        assert await services.start(a=diary.service("a")) == ["a"]
        assert await services.start(b=diary.service("b"), c=diary.service("c")) == ["b", "c"]

    assert diary.lines[-3:] == ["c ends", "b ends", "a ends"]
    assert all(len(tasks) == 1 for tasks in diary.tasks.values())


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
