"""The mail agent: one action in the user's mailbox per step.

::

    execute: action by the plan, else by the model
             search, read, draft -> done                    -> summary
             send, reply         -> composed -> proposed    (the step waits, nothing is sent)
    perform: the approved message, exactly once             -> summary
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from bos.common.v1 import Outcome
from bos_agentkit import (
    AgentFailure,
    awaiting_approval,
    failed,
    needed_reply,
    optional_reply,
    succeeded,
)
from bos_errors import AgentErrorType, InvalidArgument
from bos_llm import NoReply
from bos_mail import prompts, writing
from bos_mail.card import mail_card
from bos_mail.failures import OutcomeUncertain, message_not_found
from bos_mail.mailbox import Folder
from bos_mail.replies import MailAction, MailSummary, MailText, MailWithFiles
from bos_mail.tools import MailTools
from bos_mail.writing import GivenAttachment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bos.agent.v1 import AgentResult, ProposedAction
    from bos_agentkit import AgentTask
    from bos_llm import Model, ModelNotConfigured
    from bos_mail.connections import Mailboxes
    from bos_mail.mailbox import Letter
    from bos_mail.settings import MailSettings

TOOLS = {
    "search_inbox": "search_messages",
    "search_sent": "search_sent_messages",
    "search_drafts": "search_drafts",
    "read": "get_message_by_id",
    "send": "send_email",
    "draft": "draft_email",
    "reply": "reply_to_message",
}
"""The tool of each action."""
_ACTIONS = {tool: action for action, tool in TOOLS.items()}
_attachments = TypeAdapter(list[GivenAttachment])


class MailAgent(MailTools):
    """Works in the mailbox that the user has connected.

    Args:
        settings: Limits.
        mailboxes: Opens the mailbox of a step.
        model: Chooses actions, writes mails and summaries; None: only what plans spell out.
    """

    def __init__(self, settings: MailSettings, mailboxes: Mailboxes, model: Model | None) -> None:
        super().__init__(settings, mailboxes)
        self._model = model
        self.card = mail_card(self.all_tools())

    async def execute(self, task: AgentTask) -> AgentResult:
        """Do one thing, or propose to send."""
        sender = self._mailboxes.of(task.input).address  # fails before a model is asked
        chosen = await self._action(task)
        task.trace.decision("Chose an action", action=chosen.action, query=chosen.query)
        match chosen.action:
            case "search_inbox" | "search_sent" | "search_drafts":
                data = await self._searched(task, chosen)
            case "read":
                found = await task.tools.call(
                    TOOLS["read"], message_id=await self._message(task, chosen)
                )
                data = {"message": found}
            case "draft":
                words = await self._words(task, chosen, sender, None)
                draft = await task.tools.call(TOOLS["draft"], **_recipients(chosen), **words)
                data = {"draft": draft}
            case "send":
                return await self._propose_mail(task, chosen, sender)
            case _:
                return await self._propose_reply(task, chosen, sender)
        return await self._summarised(task, chosen.action, data)

    async def perform(self, task: AgentTask, actions: Sequence[ProposedAction]) -> AgentResult:
        """Send exactly the approved message, unless it was sent before."""
        if len(actions) != 1:
            raise InvalidArgument.field("approval_context.approved_actions", "must be one message")
        tool = actions[0].tool
        try:
            fields = await task.tools.perform(actions[0])
        except OutcomeUncertain as error:
            return failed(
                task,
                type=AgentErrorType.OUTCOME_UNKNOWN,
                message=f"{error.message} It is not known whether it was sent, and it was not sent "
                "again.",
            )
        if tool == TOOLS["draft"]:
            return await self._summarised(task, "draft", {"draft": fields})
        action = _ACTIONS.get(tool, "send")
        return await self._summarised(
            task, action, {"sent" if action == "send" else action: fields}
        )

    async def _action(self, task: AgentTask) -> MailAction:
        """The action, spelled out by the plan or chosen by the model."""
        allowed = [_ACTIONS[each.name] for each in task.tools.allowed if each.name in _ACTIONS]
        named = _ACTIONS.get(task.input.tool_name)
        arguments = task.arguments
        given = MailAction(
            action=named or "search_inbox",
            query=_text(arguments, "query"),
            message_id=_text(arguments, "message_id"),
            to=_texts(arguments, "to"),
            cc=_texts(arguments, "cc"),
            bcc=_texts(arguments, "bcc"),
        )
        if named is not None and not task.overridden and _is_spelled_out(given, arguments):
            return given
        messages = prompts.action_messages(task, [named] if named else allowed)
        chosen = await needed_reply(
            task, self._model, messages, MailAction, no_model=_no_model_to_choose
        )
        if named is not None and not task.overridden:
            chosen = chosen.model_copy(update={"action": named})
        # What the plan says about recipients and messages is not the model's to change.
        fixed = {
            name: getattr(given, name)
            for name in ("query", "message_id", "to", "cc", "bcc")
            if getattr(given, name) and not task.overridden
        }
        return chosen.model_copy(update=fixed)

    async def _searched(self, task: AgentTask, chosen: MailAction) -> dict[str, Any]:
        limit = task.arguments.get("limit")
        more = {"limit": limit} if isinstance(limit, int) else {}
        found = await task.tools.call(TOOLS[chosen.action], query=chosen.query, **more)
        name = "drafts" if chosen.action == "search_drafts" else "messages"
        return {name: found, "count": len(found)}

    async def _message(self, task: AgentTask, chosen: MailAction) -> str:
        """Id of the message that is meant: named, the only one of earlier steps, or searched."""
        if chosen.message_id:
            return chosen.message_id
        if not chosen.query and (known := _upstream_message(task)):
            return known
        # Not by the tool: the plan may list the one alone that follows, and this reads no more.
        found = await self._search(task, Folder.INBOX, chosen.query, 1)
        if not found:
            raise message_not_found()
        return str(found[0]["id"])

    async def _propose_mail(self, task: AgentTask, chosen: MailAction, sender: str) -> AgentResult:
        words = await self._words(task, chosen, sender, None)
        arguments = {"sender": sender, **self._checked(chosen), **words}
        return _proposed(task, TOOLS["send"], arguments)

    async def _propose_reply(self, task: AgentTask, chosen: MailAction, sender: str) -> AgentResult:
        original: Letter = await self._read(task, await self._message(task, chosen))
        answered = original.reply_to or original.sender
        chosen = chosen.model_copy(update={"to": [answered], "bcc": []})
        words = await self._words(task, chosen, sender, original)
        addressed = self._checked(chosen)
        del addressed["bcc"]
        thread = [each for each in original.references if each != original.message_id]
        arguments = {
            "message_id": original.id,
            "sender": sender,
            **addressed,
            **words,
            "subject": _reply_subject(original.subject),
            "in_reply_to": original.message_id,
            "references": thread[-19:],
        }
        return _proposed(task, TOOLS["reply"], arguments)

    def _checked(self, chosen: MailAction) -> dict[str, list[str]]:
        """Normalised recipients: the approver sees exactly those that the server gets."""
        to, cc, bcc = writing.recipients(
            chosen.to,
            chosen.cc,
            chosen.bcc,
            most=self._settings.max_recipients,
            domains=self._settings.recipient_domains,
        )
        return {"to": to, "cc": cc, "bcc": bcc}

    async def _words(
        self, task: AgentTask, chosen: MailAction, sender: str, original: Letter | None
    ) -> dict[str, Any]:
        """Subject, body and attachments, of the plan or written by the model."""
        arguments = task.arguments
        subject, body = _text(arguments, "subject"), _text(arguments, "body")
        if original is not None:
            subject = _reply_subject(original.subject)
        changed = bool(task.input.approval_context.user_instructions.strip())
        choosing = len(task.input_files) > 0 and "attachments" not in arguments
        attachments = _given_attachments(arguments)
        if changed or choosing or not subject or not body:
            messages = prompts.compose_messages(
                task, sender=sender, to=chosen.to, original=original
            )
            written = await needed_reply(
                task,
                self._model,
                messages,
                MailWithFiles if choosing else MailText,
                no_model=_no_model_to_write,
            )
            if isinstance(written, MailWithFiles):
                attachments = [GivenAttachment(name=name) for name in written.attachments if name]
            subject = written.subject if changed or not subject else subject
            body = written.body if changed or not body else body
        return {
            "subject": writing.subject_line(" ".join(subject.split())),
            "body": writing.body_of(body, self._settings.max_body_chars),
            "attachments": [
                each.model_dump() for each in writing.described(attachments, task.input_files)
            ],
        }

    async def _summarised(self, task: AgentTask, action: str, data: dict[str, Any]) -> AgentResult:
        """The result, in the model's words or else plainly."""
        seconds = min(self._settings.summary_timeout_s, task.remaining_s() * 0.8)
        try:
            reply = await optional_reply(
                task,
                self._model,
                lambda: prompts.summary_messages(task, action, data),
                MailSummary,
                within_s=seconds,
            )
            answer = reply.result
        except NoReply as failure:
            task.trace.message(
                "No summary from the model; stating the result plainly", error=failure.error_type
            )
            answer = _plain(action, data)
        found_nothing = data.get("count") == 0
        return succeeded(
            task,
            answer=answer,
            data={"action": action, "result": answer, **data},
            outcome=Outcome.OUTCOME_EMPTY if found_nothing else Outcome.OUTCOME_ANSWERED,
        )


def _proposed(task: AgentTask, tool: str, arguments: dict[str, Any]) -> AgentResult:
    action = task.tools.propose(tool, arguments)
    task.trace.decision("Proposed a message", tool=tool, to=arguments["to"])
    return awaiting_approval(task, [action], answer=action.summary)


def _is_spelled_out(given: MailAction, arguments: dict[str, Any]) -> bool:
    """Whether the plan determines the call completely."""
    if given.action.startswith("search"):
        return "query" in arguments
    if given.action in ("read", "reply"):
        return bool(given.message_id or given.query)
    return bool(given.to)


def _recipients(chosen: MailAction) -> dict[str, list[str]]:
    return {"to": chosen.to, "cc": chosen.cc, "bcc": chosen.bcc}


def _upstream_message(task: AgentTask) -> str:
    """Id of the newest message that an earlier step found; empty if there is none."""
    for data in task.dependencies.values():
        message = data.get("message")
        if isinstance(message, dict) and isinstance(message.get("id"), str):
            return str(message["id"])
        messages = data.get("messages")
        if isinstance(messages, list) and messages and isinstance(messages[0], dict):
            return str(messages[0].get("id", ""))
    return ""


def _given_attachments(arguments: dict[str, Any]) -> list[GivenAttachment]:
    """Attachments of the plan: texts, names of files, resolved references.

    Raises:
        InvalidArgument: they are neither.
    """
    given = arguments.get("attachments") or []
    items = [
        item
        for each in (given if isinstance(given, list) else [given])
        for item in (each if isinstance(each, list) else [each])
    ]
    named = [{"name": each} if isinstance(each, str) else each for each in items]
    try:
        return _attachments.validate_python(named)
    except ValidationError:
        raise InvalidArgument.field(
            "attachments",
            "must be a list: the name of a file that an earlier step made, or a map with its name"
            " and, if several steps made one of that name, step; or a map with name and content,"
            " the text of a file",
        ) from None


def _reply_subject(subject: str) -> str:
    plain = " ".join(subject.split())
    has_prefix = plain.lower().startswith("re:")
    return (plain if has_prefix else f"Re: {plain}")[: writing.MAX_SUBJECT_CHARS].strip()


def _text(arguments: dict[str, Any], name: str) -> str:
    given = arguments.get(name)
    return given if isinstance(given, str) else ""


def _texts(arguments: dict[str, Any], name: str) -> list[str]:
    given = arguments.get(name)
    if isinstance(given, str):
        return [each.strip() for each in given.split(",") if each.strip()]
    return [each for each in given if isinstance(each, str)] if isinstance(given, list) else []


def _plain(action: str, data: dict[str, Any]) -> str:
    """The result without a model's words."""
    match action:
        case "search_inbox" | "search_sent" | "search_drafts":
            found = data.get("messages", data.get("drafts", []))
            lines = [f"- {each['date']} {each['from']}: {each['subject']}" for each in found]
            count = len(found)
            what = "draft" if action == "search_drafts" else "message"
            head = f"Found {count} {what}{'' if count == 1 else 's'}."
            return "\n".join([head, *lines])
        case "read":
            message = data["message"]
            return (
                f"From {message['from']}, {message['date']}: {message['subject']}\n\n"
                f"{message['body']}"
            )
        case "draft":
            return f"Saved a draft to {', '.join(data['draft']['to'])}; it was not sent."
        case _:
            sent = data.get("sent") or data.get("reply") or {}
            to = ", ".join(sent.get("to", []))
            return f"{sent.get('confirmation', 'The message was sent.')} Recipients: {to}."


def _no_model_to_choose(_: ModelNotConfigured) -> AgentFailure:
    return _not_configured("Choosing what to do in the mailbox")


def _no_model_to_write(_: ModelNotConfigured) -> AgentFailure:
    return _not_configured("Writing a mail")


def _not_configured(what: str) -> AgentFailure:
    return AgentFailure(
        AgentErrorType.CONFIGURATION_ERROR,
        f"{what} needs a language model, and none is configured. Set OPENAI_API_KEY, or "
        "OPENAI_BASE_URL and BOS_MODEL.",
    )
