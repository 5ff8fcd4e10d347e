"""One message to the remote agent, and its task until that rests.

::

    send -> events ... -> rests
              '-> stream dropped -> look at the task | subscribe -> events ... -> look at the task

A message is sent once. Where nothing was heard of it, its task is looked for among those of its
context.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from a2a.types import a2a_pb2 as a2a
from a2a.utils.errors import InvalidParamsError

from bos_a2a.remote.failures import lost, not_sent
from bos_a2a.remote.http import EXCHANGE, OpenExchange
from bos_a2a.remote.tasks import RemoteTask
from bos_chassis.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from a2a.client import Client

    from bos_a2a.remote.tasks import Outgoing

_MODES = ("text/plain", "application/json")
_PAUSE = Backoff(0.2, cap_s=5.0)
_MAX_MISSES = 6
_MAX_LISTED = 50
_HISTORY = 100


class Following:
    """Sends one message and follows its task.

    Args:
        client: Of the SDK.
        where: Name of the agent for people.
        streaming: Whether the agent streams.
        message: What is sent.
        on_progress: Called with the progress messages of the agent.
    """

    def __init__(
        self,
        client: Client,
        where: str,
        *,
        streaming: bool,
        message: Outgoing,
        on_progress: Callable[[str], None],
    ) -> None:
        self._client = client
        self._where = where
        self._streaming = streaming
        self._message = message
        self._on_progress = on_progress
        self._last_progress = ""
        self.task = RemoteTask()
        self.sent = False
        """Whether the agent may have the message."""
        self._lost = lost(where, OpenExchange())

    async def until_it_rests(self) -> RemoteTask:
        """Send the message, and follow its task.

        Raises:
            CallFailed: nothing is known of an outcome.
        """
        if self._message.may_be_there:
            await self._look_for_it()
        if not self.task.heard and not await self._send():
            await self._look_for_it()
        if not self.task.rests or self._message.task_id:
            # Events of a task that goes on leave out what it held before.
            await self._catch_up()
        return self.task

    async def call_off(self) -> None:
        """Have the agent cancel the task; what it cannot or does not, is its own."""
        if not self.task.task_id:
            await self._look_for_it()
        task_id = self.task.task_id or self._message.task_id
        if task_id and not self.task.has_ended:
            async with _exchange():
                await self._client.cancel_task(a2a.CancelTaskRequest(id=task_id))

    async def _send(self) -> bool:
        """Send the message and take what comes; whether anything came.

        Raises:
            CallFailed: the agent has not begun to work on it.
        """
        context_id = self._message.context_id
        try:
            return await self._sent(context_id)
        except InvalidParamsError:
            # Some take no contexts but those that they made; a refused message was not begun.
            return await self._sent("", last=True)

    async def _sent(self, context_id: str, *, last: bool = False) -> bool:
        request = self._request(context_id)
        async with _exchange() as exchange:
            self.sent = True
            try:
                async for event in self._client.send_message(request):
                    self._take(event)
                    if self.task.rests:
                        break
            except Exception as error:  # of code of others: any failure ends this stream
                if self.task.heard:
                    return True
                if (failure := not_sent(self._where, error, exchange)) is not None:
                    self.sent = False
                    starts = not self._message.task_id and context_id and not last
                    if isinstance(error, InvalidParamsError) and starts:
                        raise
                    raise failure from error
                self._lost = lost(self._where, exchange)
        return self.task.heard

    async def _catch_up(self) -> None:
        """Follow the task until it rests, and take it whole.

        Raises:
            CallFailed: it cannot be followed.
        """
        if not self.task.task_id:
            if not self.task.rests:
                raise self._lost
            return
        misses, quiet = 0, 0
        while True:
            async with _exchange() as exchange:
                try:
                    self.task.take_task(await self._client.get_task(self._get()))
                    misses = 0
                except Exception as error:  # of code of others
                    misses += 1
                    if misses >= _MAX_MISSES:
                        if self.task.rests:
                            return
                        raise lost(self._where, exchange) from error
            if not misses and self.task.rests:
                return
            if not misses and self._streaming and await self._subscribed():
                quiet = 0
                continue
            quiet += 1
            await asyncio.sleep(_PAUSE.delay(quiet))

    async def _subscribed(self) -> bool:
        """Take events of the task while they come; whether any changed it."""
        before = (self.task.state, sum(len(a.parts) for a in self.task.artifacts.values()))
        async with _exchange():
            try:
                request = a2a.SubscribeToTaskRequest(id=self.task.task_id)
                async for event in self._client.subscribe(request):
                    self._take(event)
                    if self.task.rests:
                        break
            except Exception:  # noqa: S110  of code of others: the next look shows what is there
                pass
        after = (self.task.state, sum(len(a.parts) for a in self.task.artifacts.values()))
        return before != after

    async def _look_for_it(self) -> None:
        """Take the task that the message began, if the agent has it and says so."""
        async with _exchange():
            try:
                listed = await self._client.list_tasks(
                    a2a.ListTasksRequest(
                        context_id=self._message.context_id,
                        page_size=_MAX_LISTED,
                        history_length=_HISTORY,
                        include_artifacts=True,
                    )
                )
            except Exception:  # of code of others: not all agents list tasks
                return
        for task in listed.tasks:
            if any(each.message_id == self._message.message_id for each in task.history):
                self.task.take_task(task)
                return

    def _take(self, event: a2a.StreamResponse) -> None:
        self.task.take(event)
        if not self.task.rests and (text := self.task.said_text) != self._last_progress:
            self._last_progress = text
            self._on_progress(text)

    def _get(self) -> a2a.GetTaskRequest:
        return a2a.GetTaskRequest(id=self.task.task_id, history_length=0)

    def _request(self, context_id: str) -> a2a.SendMessageRequest:
        message = self._message
        sent = a2a.Message(
            message_id=message.message_id,
            context_id=context_id,
            task_id=message.task_id,
            role=a2a.ROLE_USER,
            parts=[a2a.Part(text=message.text, media_type="text/plain")],
        )
        if message.tainted:
            # As Bos itself takes it: the text was written by others.
            sent.metadata.update({"tainted": True})
        return a2a.SendMessageRequest(
            message=sent,
            configuration=a2a.SendMessageConfiguration(
                accepted_output_modes=_MODES, return_immediately=not self._streaming
            ),
        )


async def waiting_task(client: Client, context_id: str) -> a2a.Task | None:
    """The latest task of a context that waits for input; None if there is none, or no list."""
    async with _exchange():
        try:
            listed = await client.list_tasks(
                a2a.ListTasksRequest(
                    context_id=context_id,
                    status=a2a.TASK_STATE_INPUT_REQUIRED,
                    page_size=_MAX_LISTED,
                )
            )
        except Exception:  # of code of others: not all agents list tasks
            return None
    waiting = [
        task
        for task in listed.tasks
        if task.status.state == a2a.TASK_STATE_INPUT_REQUIRED and task.context_id == context_id
    ]
    return max(waiting, key=lambda task: task.status.timestamp.ToNanoseconds(), default=None)


@asynccontextmanager
async def _exchange() -> AsyncIterator[OpenExchange]:
    """Note what becomes of the calls inside, and hang up behind them."""
    exchange = OpenExchange()
    EXCHANGE.set(exchange)
    try:
        yield exchange
    finally:
        await exchange.close()
