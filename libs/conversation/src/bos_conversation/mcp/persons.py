"""Asking the person who sits at the client, where the client can pass a question on.

Since the version of July 2026 a server asks by its result, and the client calls again with the
reply; so any replica can take it. Before, the server sent a request of its own, for which it needs
a connection that stays, such as stdio.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcp.shared.exceptions import NoBackChannelError
from mcp.types import (
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
)

if TYPE_CHECKING:
    from mcp.server.mcpserver import Context

_ASKS_BY_RESULT = "2026-07-28"
"""First version of the protocol, a date, in which servers ask by their result."""


def reply_to(context: Context[Any, Any], key: str) -> ElicitResult | None:
    """What the person replied to the question ``key``, if the client sends that."""
    given = (context.input_responses or {}).get(key)
    return given if isinstance(given, ElicitResult) else None


async def ask_person(
    context: Context[Any, Any], key: str, message: str, schema: dict[str, Any]
) -> ElicitResult | InputRequiredResult | None:
    """The person's reply; or the result by which it is asked for; or None: it cannot be asked for.

    Args:
        context: Of the call.
        key: Names the question when the reply comes with another call.
        message: All that the person needs to read.
        schema: Of the form to fill in.
    """
    if (given := reply_to(context, key)) is not None:
        return given
    if not _can_ask(context):
        return None
    params = ElicitRequestFormParams(message=message, requested_schema=schema)
    if (context.protocol_version or "") >= _ASKS_BY_RESULT:
        return InputRequiredResult(input_requests={key: ElicitRequest(params=params)})
    try:
        reply: ElicitResult = await context.session.elicit_form(message, schema, context.request_id)
    except NoBackChannelError:
        return None
    return reply


def _can_ask(context: Context[Any, Any]) -> bool:
    offered = context.client_capabilities
    elicitation = None if offered is None else offered.elicitation
    # One that names no kind of question at all takes forms, as the first version had it.
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)
