"""The operations of A2A, directly over the gateway: a task is a run, a context a conversation.

Nothing is kept here. The SDK's own store and queues stay unused, so that any replica answers for
any task, before and after a restart of the services behind.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from a2a.server.request_handlers.request_handler import RequestHandler, validate_request_params
from a2a.types import a2a_pb2 as a2a
from a2a.utils.constants import PROTOCOL_VERSION_1_0
from a2a.utils.errors import (
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from a2a.utils.task import apply_history_length, validate_history_length
from a2a.utils.version_validator import validate_version

from bos.gateway.v1 import RunStatus
from bos_errors import InvalidArgument, NotFound
from bos_protocols.a2a.approvals import decide
from bos_protocols.a2a.card import agent_card, extended_card
from bos_protocols.a2a.failures import NO_TASK, in_words_of_a2a, invalid
from bos_protocols.a2a.following import follow, waiting_of
from bos_protocols.a2a.listing import tasks_of
from bos_protocols.a2a.messages import PUSH_REFUSED, decision_in, options_of, said
from bos_protocols.a2a.tasks import context_of, task_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from a2a.server.context import ServerCallContext
    from a2a.server.events.event_queue import Event
    from starlette.datastructures import Headers
    from structlog.typing import FilteringBoundLogger

    from bos.gateway.v1 import Run
    from bos_client import BosClient
    from bos_errors import BosError
    from bos_protocols.caller import Gateway

RECEIVED = "bos_headers"
"""Where the context of a call holds the headers, or the metadata, that it came with."""
UNWORDED = "bos_unworded"
"""Where it holds the callback for errors that A2A leaves to its transport."""
_CANCEL_WAIT_S = 15.0


@dataclass(frozen=True, slots=True)
class _Caller:
    bos: BosClient
    public_url: str


class BosTasks(RequestHandler):
    """Runs as tasks of A2A.

    Args:
        gateway: Called as the caller of each request.
        log: Gets unexpected errors.
    """

    def __init__(self, gateway: Gateway, log: FilteringBoundLogger) -> None:
        self._gateway = gateway
        self.grpc_address = ""
        """Of the gRPC binding, for the card; empty if there is none."""
        self._log = log

    def card(self, headers: Headers) -> a2a.AgentCard:
        """The card for everybody."""
        return agent_card(self._gateway.public_url(headers), self.grpc_address)

    @validate_request_params
    async def on_get_task(
        self, params: a2a.GetTaskRequest, context: ServerCallContext
    ) -> a2a.Task | None:
        """A task as it stands."""
        await _require_version(context)
        with self._called(context) as caller:
            validate_history_length(params)
            run = await _run_of(caller.bos, params.id)
            return apply_history_length(await _task(caller, run), params)

    async def on_list_tasks(
        self, params: a2a.ListTasksRequest, context: ServerCallContext
    ) -> a2a.ListTasksResponse:
        """A page of the caller's tasks, newest first."""
        await _require_version(context)
        with self._called(context) as caller:
            return await tasks_of(caller.bos, params, caller.public_url)

    @validate_request_params
    async def on_cancel_task(
        self, params: a2a.CancelTaskRequest, context: ServerCallContext
    ) -> a2a.Task | None:
        """Ask for the end of a task, and wait a moment for it."""
        await _require_version(context)
        with self._called(context) as caller:
            run = await _run_of(caller.bos, params.id)
            if not run.HasField("response"):
                await caller.bos.cancel(run.run_id)
                run = await caller.bos.get_run(run.run_id, wait_s=_CANCEL_WAIT_S)
                if not run.HasField("response") or run.status == RunStatus.RUN_STATUS_CANCELLED:
                    return await _task(caller, run)
            raise TaskNotCancelableError("The task has ended.")

    @validate_request_params
    async def on_message_send(
        self, params: a2a.SendMessageRequest, context: ServerCallContext
    ) -> a2a.Task | a2a.Message:
        """Ask, decide or answer; by default until the task ends or asks back."""
        await _require_version(context)
        with self._called(context) as caller:
            validate_history_length(params.configuration)
            run = await _begun(caller, params)
            task = await _task(caller, run)
            if not (params.configuration.return_immediately or _rests(task)):
                await self._until_it_rests(caller, run)
                task = await _task(caller, await caller.bos.get_run(run.run_id))
            return apply_history_length(task, params.configuration)

    @validate_request_params
    async def on_message_send_stream(
        self, params: a2a.SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        """Ask, decide or answer, and stream what becomes of it."""
        await _require_version(context)
        with self._called(context) as caller:
            validate_history_length(params.configuration)
            run = await _begun(caller, params)
            task = await _task(caller, run)
            yield apply_history_length(task, params.configuration)
            if _rests(task):
                return
            async with aclosing(follow(caller.bos, run, caller.public_url)) as updates:
                async for update in updates:
                    yield update

    @validate_request_params
    async def on_subscribe_to_task(
        self, params: a2a.SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        """A task as it stands, and what becomes of it; the text of its answer comes whole."""
        await _require_version(context)
        with self._called(context) as caller:
            run = await _run_of(caller.bos, params.id)
            if run.HasField("response"):
                raise UnsupportedOperationError("The task has ended; get it.")
            yield await _task(caller, run)
            async with aclosing(follow(caller.bos, run, caller.public_url)) as updates:
                async for update in updates:
                    yield update

    async def on_get_extended_agent_card(
        self, params: a2a.GetExtendedAgentCardRequest, context: ServerCallContext
    ) -> a2a.AgentCard:
        """The card for the caller."""
        await _require_version(context)
        with self._called(context) as caller:
            card = agent_card(caller.public_url, self.grpc_address)
            return extended_card(card, await caller.bos.agents())

    async def on_create_task_push_notification_config(
        self, params: a2a.TaskPushNotificationConfig, context: ServerCallContext
    ) -> a2a.TaskPushNotificationConfig:
        """Not offered, as the card says."""
        await _no_push(context)

    async def on_get_task_push_notification_config(
        self, params: a2a.GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> a2a.TaskPushNotificationConfig:
        """Not offered, as the card says."""
        await _no_push(context)

    async def on_list_task_push_notification_configs(
        self, params: a2a.ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> a2a.ListTaskPushNotificationConfigsResponse:
        """Not offered, as the card says."""
        await _no_push(context)

    async def on_delete_task_push_notification_config(
        self, params: a2a.DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        """Not offered, as the card says."""
        await _no_push(context)

    async def _until_it_rests(self, caller: _Caller, run: Run) -> None:
        """Wait for its end, for a question, or until there was time enough."""
        try:
            async with asyncio.timeout(self._gateway.settings.run_timeout_s):
                async with aclosing(follow(caller.bos, run, caller.public_url)) as updates:
                    async for _ in updates:
                        pass
        except TimeoutError:
            self._log.info("a client waits no longer for its task", run_id=run.run_id)

    @contextmanager
    def _called(self, context: ServerCallContext) -> Iterator[_Caller]:
        """Who calls; what fails inside is raised in the words of A2A."""

        def unworded(error: BosError) -> None:
            context.state[UNWORDED](error)

        with in_words_of_a2a(self._log, unworded):
            headers: Headers = context.state[RECEIVED]
            yield _Caller(self._gateway.client(headers), self._gateway.public_url(headers))


async def _begun(caller: _Caller, params: a2a.SendMessageRequest) -> Run:
    """The run that a message begins, or goes on with."""
    message = params.message
    content = said(message)
    if not message.task_id:
        options = options_of(params, content)
        if message.reference_task_ids and not message.context_id:
            about = await _run_of(caller.bos, message.reference_task_ids[0])
            options["conversation_id"] = context_of(about)
        return await caller.bos.submit(content.text, **options)
    run = await _run_of(caller.bos, message.task_id)
    if message.context_id not in ("", context_of(run)):
        raise invalid("message.context_id", "is not the context of the task")
    if run.status == RunStatus.RUN_STATUS_CLARIFICATION_NEEDED:
        options = options_of(params, content)
        options["conversation_id"] = run.conversation_id
        options["continues_run_id"] = run.run_id
        return await caller.bos.submit(content.text, **options)
    if run.HasField("response"):
        raise UnsupportedOperationError(
            "The task has ended. To follow it up, send its context and no task."
        )
    await decide(caller.bos, run, decision_in(content))
    return run


async def _task(caller: _Caller, run: Run) -> a2a.Task:
    return task_of(run, await waiting_of(caller.bos, run), caller.public_url)


def _rests(task: a2a.Task) -> bool:
    """Whether nothing happens to a task unless its client does something."""
    return task.status.state not in (a2a.TASK_STATE_SUBMITTED, a2a.TASK_STATE_WORKING)


async def _run_of(bos: BosClient, task_id: str) -> Run:
    """The run of a task.

    Raises:
        TaskNotFoundError: there is none, or it is another user's.
    """
    try:
        return await bos.get_run(task_id)
    except (NotFound, InvalidArgument):
        raise TaskNotFoundError(NO_TASK) from None


@validate_version(PROTOCOL_VERSION_1_0)
async def _require_version(context: ServerCallContext) -> None:
    """Refuse what is not said in version 1, also where the SDK's binding does not look."""


async def _no_push(context: ServerCallContext) -> NoReturn:
    await _require_version(context)
    raise PushNotificationNotSupportedError(PUSH_REFUSED)
