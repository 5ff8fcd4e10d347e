"""The files agent: one operation on the user's workspace a step.

::

    the plan says the call, or the model replies with one -> checked -> tool -> workspace
                                                                |
                                                                '- deletes: proposed, approved, then

A tool that makes a file keeps it in the workspace under its name, and attaches it to the result.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from bos.agent.v1 import SideEffectClass
from bos.common.v1 import Outcome
from bos_agentkit import Agent, AgentFailure, ToolContext, needed_reply, succeeded, tool
from bos_agentkit.files import MAX_FILE_BYTES
from bos_agentkit.programs.variables import task_variables
from bos_chassis.auth.callers import LOCAL_USER, current_principal
from bos_chassis.values import make_table
from bos_errors import AgentErrorType, BosError, FailedPrecondition, InvalidArgument, NotFound
from bos_files import prompts
from bos_files.card import files_card
from bos_files.downloads import download
from bos_files.media_types import decoded
from bos_files.operations import Call, chosen_call, planned_call
from bos_files.pdf.rendering import Paper, PdfText, TextFormat
from bos_files.replies import FileOperation
from bos_files.tables import csv_content, table_of, xlsx_content
from bos_files.workspaces.names import checked_name, with_ending
from bos_llm.numbers.check import ungrounded_numbers
from bos_postgres.audit import By

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bos.agent.v1 import AgentResult
    from bos_agentkit import AgentTask
    from bos_agentkit.programs.variables import Variable
    from bos_files.metrics import FilesMetrics
    from bos_files.pdf.rendering import PdfMaker
    from bos_files.settings import FilesSettings
    from bos_files.workspaces.rows import Origin, Stored
    from bos_files.workspaces.workspace import Workspaces
    from bos_http import HttpClient
    from bos_llm import Message, Model, ModelNotConfigured

_NONE = SideEffectClass.SIDE_EFFECT_CLASS_NONE
_IDEMPOTENT = SideEffectClass.SIDE_EFFECT_CLASS_IDEMPOTENT
# Rows of every query taint a step, so anything else would ask a person about each export. What a
# file displaces is kept as an earlier version, its size is bounded by the quota, and only its
# owner sees it: as with programs in the sandbox, a user has nothing to undo.
_KEPT = SideEffectClass.SIDE_EFFECT_CLASS_NONE
TEXT_NOT_GROUNDED = "TextNotGrounded"
_LISTED = 200
_KIB = 1024
FileName = Annotated[str, Field(min_length=1, max_length=255, description="Name, without folders")]


class FilesAgent(Agent):
    """Agent that works on the user's workspace.

    Args:
        settings: Limits.
        workspaces: Files of users.
        pdfs: Makes PDF files.
        http: Downloads, from allowed hosts alone.
        metrics: Counts what is made.
        model: Says the operation where the plan does not; None: plans have to.
        clock: The current time, for steps whose context names no date.
    """

    def __init__(
        self,
        settings: FilesSettings,
        workspaces: Workspaces,
        pdfs: PdfMaker,
        http: HttpClient,
        metrics: FilesMetrics,
        model: Model | None,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._settings = settings
        self._workspaces = workspaces
        self._pdfs = pdfs
        self._http = http
        self._metrics = metrics
        self._model = model
        self._clock = clock
        self.card = files_card(self.all_tools())

    @tool(description="List the files of the user's workspace.", side_effect=_NONE)
    async def list_files(self, context: ToolContext) -> dict[str, Any]:
        """The files in the order of their names, 200 at most, and how many there are."""
        user_id = _user(context.task)
        found = await self._workspaces.store.listed(user_id, "", _LISTED)
        held = await self._workspaces.store.held(user_id)
        if any(each.tainted for each in found):
            context.task.taint()
        return {"files": [_fields(each) for each in found], "file_count": held.files}

    @tool(
        description="Read a text file of the user's workspace; of other files their name, size and"
        " media type.",
        side_effect=_NONE,
    )
    async def read_file(self, name: FileName, context: ToolContext) -> dict[str, Any]:
        """What is known of it, its text, and whether that was truncated."""
        user_id = _user(context.task)
        stored = await self._workspaces.store.current(user_id, checked_name(name))
        if stored.tainted:
            context.task.taint()
        text = decoded(await self._workspaces.content(user_id, stored))
        limit = self._settings.max_read_chars
        known: dict[str, Any] = {"text": None, "truncated": False}
        if text is not None:
            known = {"text": text[:limit], "truncated": len(text) > limit}
        return {**_fields(stored), **known}

    @tool(description="Write a text or Markdown file.", side_effect=_KEPT)
    async def write_file(self, name: FileName, text: str, context: ToolContext) -> dict[str, Any]:
        """Write a file; earlier content under the name becomes an earlier version."""
        self._require_length(text)
        name = name if "." in name else with_ending(name, ".txt")
        written = await self._write(context.task, name, text.encode("utf-8", "replace"), "text")
        limit = self._settings.max_read_chars
        return {**written, "text": text[:limit], "truncated": len(text) > limit}

    @tool(
        description="Make a PDF from text or Markdown, in any language; font names a family that "
        "comes before the default ones.",
        side_effect=_KEPT,
    )
    async def create_pdf_from_text(
        self,
        text: str,
        context: ToolContext,
        name: FileName = "document.pdf",
        title: Annotated[str, Field(max_length=300)] = "",
        format: TextFormat = "markdown",
        paper: Paper = "a4",
        font: Annotated[str, Field(max_length=100)] = "",
    ) -> dict[str, Any]:
        """Make it and keep it in the workspace."""
        self._require_length(text)
        checked_name(with_ending(name, ".pdf"))
        content = await self._pdfs.make(PdfText(text, title, format, paper, font))
        return await self._write(context.task, with_ending(name, ".pdf"), content, "pdf")

    @tool(
        description="Write rows (lists of maps, as outputs of other steps have them) as an Excel "
        "file.",
        side_effect=_KEPT,
    )
    async def write_xlsx(
        self,
        rows: list[Any],
        context: ToolContext,
        name: FileName = "table.xlsx",
        columns: list[str] | None = None,
        sheet: str = "Sheet1",
    ) -> dict[str, Any]:
        """Write rows with exact values and without formulas."""
        names, body = self._table(rows, columns)
        content = await asyncio.to_thread(xlsx_content, names, body, sheet)
        written = await self._write(context.task, with_ending(name, ".xlsx"), content, "xlsx")
        return {**written, "row_count": len(body)}

    @tool(
        description="Write rows (lists of maps, as outputs of other steps have them) as CSV.",
        side_effect=_KEPT,
    )
    async def write_csv(
        self,
        rows: list[Any],
        context: ToolContext,
        name: FileName = "table.csv",
        columns: list[str] | None = None,
    ) -> dict[str, Any]:
        """Write them with exact values; no cell begins as a formula does."""
        names, body = self._table(rows, columns)
        content = await asyncio.to_thread(csv_content, names, body)
        written = await self._write(context.task, with_ending(name, ".csv"), content, "csv")
        return {**written, "row_count": len(body)}

    @tool(
        description="Download a file from an allowed address (https) into the workspace.",
        side_effect=_IDEMPOTENT,
        aliases=("FileDownloaderTool",),
    )
    async def download_file(
        self,
        url: Annotated[str, Field(min_length=1, max_length=4096)],
        context: ToolContext,
        name: Annotated[str, Field(max_length=255)] = "",
    ) -> dict[str, Any]:
        """Download a file; its content determines the media type, and it is never executed."""
        task = context.task
        if name:
            checked_name(name)
        task.usage.api_call()
        try:
            found = await download(self._http, url, remaining_s=task.remaining_s())
        except (BosError, AgentFailure) as error:
            refused = error.reason == "HTTP_REFUSED"
            self._metrics.downloads.labels("refused" if refused else "failed").inc()
            raise
        written = await self._write(
            task, name or found.name, found.content, "download", origin="download"
        )
        self._metrics.downloads.labels("stored").inc()
        task.taint()
        return {**written, "url": found.url}

    @tool(
        description="Rename a file of the workspace; nothing is overwritten.",
        side_effect=_IDEMPOTENT,
    )
    async def rename_file(
        self, name: FileName, new_name: FileName, context: ToolContext
    ) -> dict[str, Any]:
        """Rename it, with all its versions."""
        renamed = await self._workspaces.store.rename(
            _user(context.task),
            checked_name(name),
            checked_name(new_name, "new_name"),
            By.of(current_principal()),
        )
        return _fields(renamed)

    @tool(
        description="Delete a file of the workspace with all its versions. A person approves it.",
        requires_approval=True,
        side_effect=_IDEMPOTENT,
        summary="Delete the file {name} ({digest}) with all its versions",
    )
    async def delete_file(
        self,
        name: FileName,
        digest: Annotated[str, Field(pattern="^sha256:[0-9a-f]{64}$")],
        context: ToolContext,
    ) -> dict[str, Any]:
        """Delete it if it still has the content that was approved to be deleted."""
        user_id = _user(context.task)
        name = checked_name(name)
        try:
            await self._workspaces.delete(
                user_id, name, By.of(current_principal()), digest=digest.removeprefix("sha256:")
            )
            self._metrics.deleted.inc()
        except NotFound:
            # A missing file is as it should be; the deletion of other content was not approved.
            if await self._exists(user_id, name):
                raise FailedPrecondition(
                    f"{name} has other content than was approved to be deleted; ask again.",
                    reason="FILE_CHANGED",
                ) from None
        return {"name": name, "deleted": True}

    async def execute(self, task: AgentTask) -> AgentResult:
        """Do one step."""
        overridden = task.input.approval_context.user_instructions.strip()
        call = None if overridden else planned_call(task.input.tool_name, task.arguments)
        if call is None:
            call = await self._choose(task)
        if call.tool == "delete_file":
            name = checked_name(str(call.arguments.get("name", "")))
            stored = await self._workspaces.store.current(_user(task), name)
            call = Call(call.tool, {"name": name, "digest": f"sha256:{stored.digest}"})
        done = await task.tools.call(call.tool, **call.arguments)
        return _result(task, call.tool, done)

    async def _choose(self, task: AgentTask) -> Call:
        """The model's call; one correction of a reply that cannot be done."""
        variables = task_variables(task, self._clock)
        listed = await self._workspaces.store.listed(_user(task), "", _LISTED)
        if any(each.tainted for each in listed):
            task.taint()  # names of others stand in the prompt
        names = [each.name for each in listed]
        messages = prompts.operation_messages(task, variables, names)
        reply = await self._ask(task, messages)
        try:
            return self._checked(task, reply, variables)
        except (InvalidArgument, AgentFailure) as problem:
            task.trace.message("The operation cannot be done; asking again", error=problem.message)
            again = prompts.correction_messages(messages, reply, problem.message)
            return self._checked(task, await self._ask(task, again), variables)

    async def _ask(self, task: AgentTask, messages: Sequence[Message]) -> FileOperation:
        reply = await needed_reply(task, self._model, messages, FileOperation, no_model=_no_model)
        task.trace.decision("Chose the operation", operation=reply.operation, name=reply.name)
        return reply

    def _checked(
        self, task: AgentTask, reply: FileOperation, variables: Sequence[Variable]
    ) -> Call:
        sources = [task.effective_task, task.input.question, [each.value for each in variables]]
        if strange := ungrounded_numbers(f"{reply.title}\n{reply.text}", sources):
            raise AgentFailure(
                TEXT_NOT_GROUNDED,
                "The text holds numbers that neither the task nor the data give: "
                f"{', '.join(strange[:5])}.",
            )
        return chosen_call(reply, variables)

    def _table(
        self, rows: list[Any], columns: Sequence[str] | None
    ) -> tuple[list[str], list[list[Any]]]:
        names, body = table_of(rows, columns or ())
        if len(body) > self._settings.max_rows:
            raise InvalidArgument.field("rows", f"may be {self._settings.max_rows} at most")
        return names, body

    def _require_length(self, text: str) -> None:
        if not text.strip():
            raise InvalidArgument.field("text", "must not be blank")
        if len(text) > self._settings.max_text_chars:
            raise InvalidArgument.field(
                "text", f"may have {self._settings.max_text_chars} characters"
            )

    async def _exists(self, user_id: str, name: str) -> bool:
        try:
            await self._workspaces.store.current(user_id, name)
        except NotFound:
            return False
        return True

    async def _write(
        self, task: AgentTask, name: str, content: bytes, kind: str, *, origin: Origin = "step"
    ) -> dict[str, Any]:
        """Keep a content in the workspace, and attach it to the result."""
        metadata = task.input.metadata
        committed = await self._workspaces.write(
            _user(task),
            name,
            content,
            By.of(current_principal()),
            origin=origin,
            tainted=task.tainted or origin == "download",
            run_id=metadata.run_id,
            step_key=metadata.step_key,
        )
        stored = committed.stored
        self._metrics.written.labels(kind).inc()
        if len(content) <= MAX_FILE_BYTES:
            task.attach_file(stored.name, stored.media_type, content)
        else:
            task.trace.message(f"{stored.name} is in the workspace, too large to be attached")
        return _fields(stored)


def _user(task: AgentTask) -> str:
    principal = current_principal()
    return (principal.user_id if principal else task.input.metadata.user_id) or LOCAL_USER


def _fields(stored: Stored) -> dict[str, Any]:
    return {
        "name": stored.name,
        "digest": f"sha256:{stored.digest}",
        "size_bytes": stored.size_bytes,
        "media_type": stored.media_type,
        "version": stored.number,
    }


def _result(task: AgentTask, tool: str, done: dict[str, Any]) -> AgentResult:
    if tool == "list_files":
        return _listing(task, done)
    name = done["name"]
    if tool == "read_file":
        text = done["text"]
        answer = f"{name}:\n{text}" if text else f"{name} ({done['media_type']}) holds no text."
    elif tool == "rename_file":
        answer = f"The file is now called {name}."
    elif tool == "delete_file":
        answer = f"{name} was deleted."
    else:
        rows = f"{done['row_count']} rows, " if "row_count" in done else ""
        size = _size(done["size_bytes"])
        answer = f"The file {name} ({rows}{size}) is in your workspace, version {done['version']}."
    return succeeded(task, answer=answer, data=done)


def _listing(task: AgentTask, done: dict[str, Any]) -> AgentResult:
    files, count = done["files"], done["file_count"]
    if not files:
        return succeeded(
            task,
            answer="Your workspace holds no files.",
            data=done,
            outcome=Outcome.OUTCOME_EMPTY,
        )
    named = ", ".join(f"{each['name']} ({_size(each['size_bytes'])})" for each in files[:20])
    more = f" and {count - 20} more" if count > 20 else ""
    plural = "file" if count == 1 else "files"
    columns = ["name", "size_bytes", "media_type", "version"]
    table = make_table(
        columns,
        [[each[column] for column in columns] for each in files],
        truncated=count > len(files),
    )
    answer = f"Your workspace holds {count} {plural}: {named}{more}."
    return succeeded(task, answer=answer, table=table, data=done)


def _size(size_bytes: int) -> str:
    if size_bytes < _KIB:
        return f"{size_bytes} bytes"
    if size_bytes < _KIB * _KIB:
        return f"{size_bytes / _KIB:.1f} KiB"
    return f"{size_bytes / _KIB / _KIB:.1f} MiB"


def _no_model(_: ModelNotConfigured) -> AgentFailure:
    return AgentFailure(
        AgentErrorType.CONFIGURATION_ERROR,
        "To find the operation from the task a language model is needed, and none is configured; a "
        "plan that names the tool and its arguments works without one. Set OPENAI_API_KEY, or "
        "OPENAI_BASE_URL and BOS_MODEL.",
    )
