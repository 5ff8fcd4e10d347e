from __future__ import annotations

from typing import TYPE_CHECKING

from bos_agentkit import agent_card
from bos_mail.connections import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bos.agent.v1 import AgentCard
    from bos_agentkit import AgentTool

NAME = "mail"

# Keywords match anywhere in a question: bare "mail" stands in "mailing address" and "send" in
# "which orders were sent".
KEYWORDS = (
    "email",
    "e-mail",
    "inbox",
    "mailbox",
    "my mail",
    "send a mail",
    "by mail to",
    "mail to ",
    "mail from ",
    "mails from ",
    "unread",
    "reply to ",
    "draft a ",
)
# The first group: it is a candidate only where no agent has a higher score, and displaces no other.
_SELECTION_GROUP = 0


def mail_card(tools: Iterable[AgentTool]) -> AgentCard:
    """Card of the mail agent."""
    return agent_card(
        NAME,
        "The user's own mailbox: search, read, draft; send and reply once approved.",
        # Every plan's prompt shows the card, so it says no more than choosing takes.
        typical_use_cases=(
            "What did Asha write last week?",
            "Send this summary to asha@example.com. (after other steps)",
        ),
        keywords=KEYWORDS,
        selection_group=_SELECTION_GROUP,
        tools=tools,
        output_fields={
            "action": "",
            "result": "in words",
            "messages": "list of id, from, subject, date, snippet",
            "drafts": "likewise",
            "count": "",
            "message": "from, to, subject, date, body",
            "sent": "",
            "draft": "",
            "reply": "",
        },
        default_timeout_s=90,
        max_retries=3,
        latency_budget_s=8,
        connection_kinds=KINDS,
        takes_files=True,
        version="0.1.0",
    )
