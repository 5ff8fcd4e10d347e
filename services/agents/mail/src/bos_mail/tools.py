"""The mailbox tools: four that read, one that drafts, two that send after approval."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from bos.agent.v1 import SideEffectClass
from bos_agentkit import Agent, ToolContext, tool
from bos_errors import InvalidArgument
from bos_mail import writing
from bos_mail.mailbox import Folder
from bos_mail.search import parse_query

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bos_agentkit import AgentTask
    from bos_mail.connections import Mailboxes
    from bos_mail.mailbox import Listed, Outgoing, Sent
    from bos_mail.settings import MailSettings

_NONE = SideEffectClass.SIDE_EFFECT_CLASS_NONE
# The mailbox is asked for the Message-ID, which follows from the step's key, before it is sent.
_IDEMPOTENT = SideEffectClass.SIDE_EFFECT_CLASS_IDEMPOTENT
_SYNTAX = (
    'such as `from:asha subject:"open invoices" after:2026-01-31 is:unread`; empty: the newest'
)


class MailTools(Agent):
    """Tools over the mailbox that the user has connected.

    Args:
        settings: Limits.
        mailboxes: Opens the mailbox of a step.
        clock: The current time.
    """

    def __init__(
        self,
        settings: MailSettings,
        mailboxes: Mailboxes,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._settings = settings
        self._mailboxes = mailboxes
        self._clock = clock

    @tool(description=f"inbox; query {_SYNTAX}.", side_effect=_NONE)
    async def search_messages(
        self, context: ToolContext, query: str = "", limit: int = 10
    ) -> list[dict[str, Any]]:
        """Messages, the newest first."""
        return await self._search(context.task, Folder.INBOX, query, limit)

    @tool(description=f"sent; query {_SYNTAX}.", side_effect=_NONE)
    async def search_sent_messages(
        self, context: ToolContext, query: str = "", limit: int = 10
    ) -> list[dict[str, Any]]:
        """Messages, the newest first."""
        return await self._search(context.task, Folder.SENT, query, limit)

    @tool(description=f"drafts; query {_SYNTAX}.", side_effect=_NONE)
    async def search_drafts(
        self, context: ToolContext, query: str = "", limit: int = 10
    ) -> list[dict[str, Any]]:
        """Drafts, the newest first."""
        return await self._search(context.task, Folder.DRAFTS, query, limit)

    @tool(
        description="by id; the message with its whole text, by the id that a search gave.",
        side_effect=_NONE,
    )
    async def get_message_by_id(self, message_id: str, context: ToolContext) -> dict[str, Any]:
        """The message."""
        found = await self._read(context.task, message_id)
        return dict(found.as_data())

    @tool(
        description="unsent; saves a mail among the drafts.",
        side_effect=_IDEMPOTENT,
        summary="Save a draft to {to} with the subject {subject}",
    )
    async def draft_email(
        self,
        to: list[str],
        subject: str,
        body: str,
        context: ToolContext,
        cc: list[str] | None = None,
        bcc: list[str] | None = None,
        attachments: list[writing.Attachment] | None = None,
    ) -> dict[str, Any]:
        """The draft as it was saved."""
        mailbox = self._mailboxes.of(context.task.input)
        outgoing, shown = self._built(
            context,
            sender=mailbox.address,
            to=to,
            cc=cc or [],
            bcc=bcc or [],
            subject=subject,
            body=body,
            attachments=attachments or [],
            keep_bcc=True,
        )
        context.task.usage.api_call()
        return {"id": await mailbox.save_draft(outgoing), **shown}

    @tool(
        description="a new mail; a person approves the whole message.",
        requires_approval=True,
        side_effect=_IDEMPOTENT,
        summary="Send a mail from {sender} to {to} with the subject {subject}",
    )
    async def send_email(
        self,
        sender: str,
        to: list[str],
        cc: list[str],
        bcc: list[str],
        subject: str,
        body: str,
        attachments: list[writing.Attachment],
        context: ToolContext,
    ) -> dict[str, Any]:
        """Confirmation and Message-ID of the sent message."""
        mailbox = self._mailboxes.of(context.task.input)
        _require_sender(sender, mailbox.address)
        outgoing, shown = self._built(
            context,
            sender=sender,
            to=to,
            cc=cc,
            bcc=bcc,
            subject=subject,
            body=body,
            attachments=attachments,
        )
        context.task.usage.api_call()
        return _confirmation(await mailbox.send(outgoing), shown)

    @tool(
        description="in its thread; a person approves the whole reply.",
        requires_approval=True,
        side_effect=_IDEMPOTENT,
        summary="Reply from {sender} to {to} with the subject {subject}",
    )
    async def reply_to_message(
        self,
        message_id: str,
        sender: str,
        to: list[str],
        cc: list[str],
        subject: str,
        in_reply_to: str,
        references: list[str],
        body: str,
        attachments: list[writing.Attachment],
        context: ToolContext,
    ) -> dict[str, Any]:
        """Confirmation and Message-ID of the reply."""
        mailbox = self._mailboxes.of(context.task.input)
        _require_sender(sender, mailbox.address)
        outgoing, shown = self._built(
            context,
            sender=sender,
            to=to,
            cc=cc,
            bcc=[],
            subject=subject,
            body=body,
            attachments=attachments,
            in_reply_to=next(iter(writing.references([in_reply_to] if in_reply_to else [])), ""),
            thread=writing.references(references),
            thread_of=message_id,
        )
        context.task.usage.api_call()
        return {**_confirmation(await mailbox.send(outgoing), shown), "in_reply_to": in_reply_to}

    async def _search(
        self, task: AgentTask, folder: Folder, query: str, limit: int
    ) -> list[dict[str, Any]]:
        mailbox = self._mailboxes.of(task.input)
        parsed = parse_query(query, self._today(task))
        most = max(1, min(limit, self._settings.max_results))
        task.usage.api_call()
        found: Sequence[Listed] = await mailbox.search(folder, parsed, most)
        if found:
            task.taint()
        return [each.as_data() for each in found]

    async def _read(self, task: AgentTask, message_id: str) -> Any:
        mailbox = self._mailboxes.of(task.input)
        task.usage.api_call()
        found = await mailbox.read(message_id)
        task.taint()
        return found

    def _built(
        self,
        context: ToolContext,
        *,
        sender: str,
        to: Sequence[str],
        cc: Sequence[str],
        bcc: Sequence[str],
        subject: str,
        body: str,
        attachments: Sequence[writing.Attachment],
        **more: Any,
    ) -> tuple[Outgoing, dict[str, Any]]:
        """The message, and its part in the step's data."""
        to, cc, bcc = writing.recipients(
            to,
            cc,
            bcc,
            most=self._settings.max_recipients,
            domains=self._settings.recipient_domains,
        )
        files = context.task.input_files
        subject = writing.subject_line(subject)
        body = writing.body_of(body, self._settings.max_body_chars)
        # Without a step key nothing repeats this call.
        has_key = bool(context.task.input.metadata.step_key)
        key = context.idempotency_key if has_key else uuid4().hex
        outgoing = writing.built(
            id=writing.message_id(key, sender),
            sender=sender,
            to=to,
            cc=cc,
            bcc=bcc,
            subject=subject,
            body=body,
            attachments=writing.parts(attachments, files),
            when=self._clock(),
            **more,
        )
        shown = {"from": sender, "to": to, "cc": cc, "bcc": bcc, "subject": subject, "body": body}
        attached = [each.model_dump(exclude={"content"}) for each in attachments]
        return outgoing, {**shown, "attachments": attached, "message_id": outgoing.message_id}

    def _today(self, task: AgentTask) -> date:
        context = task.input.context.fields
        if "current_date" in context:
            try:
                return date.fromisoformat(context["current_date"].string_value)
            except ValueError:
                pass
        return self._clock().date()


def _require_sender(sender: str, address: str) -> None:
    """Refuse a mailbox other than the one of the approval."""
    if sender != address:
        raise InvalidArgument.field(
            "sender", "is not the address of the connected mailbox; ask again"
        )


def _confirmation(sent: Sent, shown: dict[str, Any]) -> dict[str, Any]:
    notes = []
    if sent.was_sent_before:
        notes.append("An earlier attempt had sent it; it was not sent again.")
    if not sent.copy_in_sent:
        notes.append("The copy among the sent mails could not be saved.")
    return {"confirmation": " ".join(["The message was sent.", *notes]), **shown}
