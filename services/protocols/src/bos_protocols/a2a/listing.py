"""Pages of tasks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from a2a.types import a2a_pb2 as a2a
from a2a.utils.constants import DEFAULT_LIST_TASKS_PAGE_SIZE
from a2a.utils.task import apply_history_length, validate_history_length, validate_page_size

from bos.gateway.v1 import RunStatus
from bos_errors import InvalidArgument, NotFound
from bos_protocols.a2a.following import waiting_of
from bos_protocols.a2a.tasks import STATES, task_of

if TYPE_CHECKING:
    from bos.gateway.v1 import Run
    from bos_client import BosClient

_AT_ONCE = 8
_WAITING = RunStatus.RUN_STATUS_WAITING_FOR_APPROVAL


async def tasks_of(
    bos: BosClient, params: a2a.ListTasksRequest, public_url: str
) -> a2a.ListTasksResponse:
    """A page of the caller's tasks, newest first.

    A page may hold fewer than were asked for: the gateway's pages are filtered here by what it does
    not filter by. It counts no runs either, so the total is that of the page, and one more if
    another page follows.
    """
    page_size = DEFAULT_LIST_TASKS_PAGE_SIZE
    if params.HasField("page_size"):
        validate_page_size(params.page_size)
        page_size = params.page_size
    validate_history_length(params)
    # Where conversations are not kept, a task is its own context, and what follows it up names it.
    place = 1 if params.context_id and page_size > 1 else 0
    page = await bos.list_runs(
        page_size=page_size - place,
        page_token=params.page_token,
        status=_only_status(params.status),
        conversation_id=params.context_id,
    )
    runs = list(page.runs)
    if place and not page.next_page_token:
        runs += await _beginning(bos, params.context_id)
    since = params.status_timestamp_after.ToNanoseconds()
    recent = [run for run in runs if run.update_time.ToNanoseconds() >= since]
    listed = await _all_tasks(bos, recent, params.include_artifacts, public_url)
    tasks = [
        apply_history_length(task, params)
        for task in listed
        if params.status in (a2a.TASK_STATE_UNSPECIFIED, task.status.state)
    ]
    return a2a.ListTasksResponse(
        tasks=tasks,
        next_page_token=page.next_page_token,
        page_size=page_size,
        total_size=len(tasks) + bool(page.next_page_token),
    )


async def _beginning(bos: BosClient, context_id: str) -> list[Run]:
    """The run that is a context by itself, if it is one."""
    try:
        run = await bos.get_run(context_id)
    except (NotFound, InvalidArgument):
        return []
    return [] if run.conversation_id else [run]


def _only_status(state: a2a.TaskState) -> RunStatus:
    """The status of all runs in a state, if there is one alone."""
    found = [status for status, its in STATES.items() if its == state]
    alone = len(found) == 1 and state != a2a.TASK_STATE_INPUT_REQUIRED
    return found[0] if alone else RunStatus.RUN_STATUS_UNSPECIFIED


async def _all_tasks(
    bos: BosClient, runs: list[Run], whole: bool, public_url: str
) -> list[a2a.Task]:
    places = asyncio.Semaphore(_AT_ONCE)

    async def one(run: Run) -> a2a.Task:
        async with places:
            if whole:
                run = await bos.get_run(run.run_id)
            waiting = await waiting_of(bos, run) if run.status == _WAITING else None
            return task_of(run, waiting, public_url)

    async with asyncio.TaskGroup() as group:
        made = [group.create_task(one(run)) for run in runs]
    return [task.result() for task in made]
