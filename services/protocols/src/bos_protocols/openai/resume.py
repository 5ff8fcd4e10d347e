"""What a turn goes on with: an approval, clarifying questions, a conversation, or nothing.

Nothing is kept between two turns. A response's id names the part of the run that it was. A list of
messages holds no id, and what it says of the assistant may be made up: it counts only
if it equals what the endpoint would show now of a run of the caller, and else it is data.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from bos.gateway.v1 import RunStatus
from bos_conversation import answer_text, approval_text, decision_of
from bos_errors import Aborted, AlreadyExists, FailedPrecondition, InvalidArgument, NotFound
from bos_protocols.openai.parts import Part, events_of, read_stored

if TYPE_CHECKING:
    from bos.gateway.v1 import Approval, Run, RunEvent
    from bos_client import BosClient
    from bos_client.requests import AskOptions
    from bos_protocols.openai.messages import Talk

_NAMED_APPROVAL = re.compile(r"[^`\n]*\(([0-9A-Za-z-]{1,64})\):")
_LISTED_RUNS = 100
_COMPARED_RUNS = 5
_PREVIOUS_S = 10.0
_CLARIFYING = RunStatus.RUN_STATUS_CLARIFICATION_NEEDED


async def after_response(
    client: BosClient, previous: Part, talk: Talk, options: AskOptions
) -> Part:
    """The part that follows a response: a decision goes on with its run, all else is a new run.

    Raises:
        Aborted: the response has not ended.
        AlreadyExists: its approval was decided otherwise.
        NotFound: the caller has no such response.
    """
    end = await read_stored(client, previous, lambda _: None, _PREVIOUS_S)
    if end is None:
        raise Aborted(
            "previous_response_id: that response is still under way; follow it, then reply.",
            reason="RESPONSE_UNDER_WAY",
        )
    if end.HasField("approval_requested"):
        approval = await client.get_approval(end.approval_requested.approval.approval_id)
        return await _decide(client, approval, Part(previous.run_id, end.sequence), talk.question)
    return await _ask(client, talk.question, options, await client.get_run(previous.run_id))


async def after_messages(
    client: BosClient, talk: Talk, options: AskOptions, public_url: str
) -> Part:
    """The part that answers a list of messages.

    Raises:
        AlreadyExists: the approval that was replied to was decided otherwise.
    """
    if (approval := await _shown_approval(client, talk.replied_to)) is not None:
        return await _decide(client, approval, await _behind(client, approval), talk.question)
    known = await _shown_run(client, talk, public_url)
    if known is not None and (known.status == _CLARIFYING or known.conversation_id):
        return await _ask(client, talk.question, options, known)
    return await submit(client, talk, options)


async def submit(client: BosClient, talk: Talk, options: AskOptions) -> Part:
    """Ask anew; what the client says was said before goes along as data of others.

    With a conversation of Bos, that is where earlier turns come from.
    """
    if not options.get("conversation_id") and (context := talk.context()):
        options = {**options, "context": context}
        # The caller's own words are theirs in an earlier message as well.
        if any(message.role == "assistant" for message in talk.earlier):
            options["tainted"] = True
    return Part((await client.submit(talk.question, **options)).run_id)


async def _ask(client: BosClient, question: str, options: AskOptions, known: Run) -> Part:
    """A new run that follows one of the caller's that has ended."""
    if known.status == _CLARIFYING:
        options = {**options, "continues_run_id": known.run_id}
    elif known.conversation_id:
        options = {**options, "conversation_id": known.conversation_id}
    else:
        said = [
            {"role": "user", "text": known.question},
            {"role": "assistant", "text": known.response.answer},
        ]
        options = {**options, "context": {"earlier_messages": said}}
        options["tainted"] = options.get("tainted", False) or known.response.tainted
    return Part((await client.submit(question, **options)).run_id)


async def _decide(client: BosClient, approval: Approval, following: Part, reply: str) -> Part:
    """Have the reply decide what was shown; the run goes on in ``following``."""
    approval_text(approval)  # what cannot be shown whole is not decided here
    decision = decision_of(reply)
    try:
        if decision.approved:
            await client.approve(approval.approval_id, decision.instructions)
        else:
            await client.deny(approval.approval_id)
    except AlreadyExists as error:
        raise AlreadyExists(
            f"{error.message} How it went on is in {following.response_id}.", reason=error.reason
        ) from error
    return following


async def _shown_approval(client: BosClient, text: str) -> Approval | None:
    """The approval that a message of the assistant shows, exactly as it would be shown now.

    Only of the caller's own runs: what others have the caller approve is not in this chat.
    """
    named = _NAMED_APPROVAL.match(text)
    if named is None:
        return None
    try:
        approval = await client.get_approval(named[1])
        if approval_text(approval).strip() != text:
            return None
        await client.get_run(approval.run_id)
    except (NotFound, FailedPrecondition, InvalidArgument):
        return None
    return approval


async def _behind(client: BosClient, approval: Approval) -> Part:
    """The part that follows a request for approval."""
    part = Part(approval.run_id)
    while True:
        end: RunEvent | None = None
        async for event in events_of(client, part):
            end = event
        if end is None or not end.HasField("approval_requested"):
            raise NotFound("The run does not show this approval.", reason="APPROVAL_NOT_FOUND")
        part = Part(approval.run_id, end.sequence)
        if end.approval_requested.approval.approval_id == approval.approval_id:
            return part


async def _shown_run(client: BosClient, talk: Talk, public_url: str) -> Run | None:
    """The caller's run whose outcome is the last message of the assistant; None for none."""
    if not talk.replied_to:
        return None
    listed = (await client.list_runs(page_size=_LISTED_RUNS)).runs
    asked = talk.questions
    likely = [run for run in listed if run.question.strip() in asked]
    for each in likely[:_COMPARED_RUNS]:
        run = await client.get_run(each.run_id)
        if run.HasField("response"):
            shown = answer_text(run.response, public_url)
            if shown.strip() == talk.replied_to:
                return run
    return None


def options_of(prefer_agents: list[str], system_prompt: str, key: str | None) -> AskOptions:
    """What every question has."""
    options: dict[str, Any] = {"request_id": key or str(uuid4())}
    if prefer_agents:
        options["prefer_agents"] = prefer_agents
    if system_prompt:
        options["system_prompt"] = system_prompt
    return options  # type: ignore[return-value]
