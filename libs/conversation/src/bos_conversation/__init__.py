"""What a run says to people in clients that show text, and what their next message means."""

from bos_conversation.deciding import Decision, decision_of
from bos_conversation.showing import (
    answer_text,
    approval_shown,
    approval_text,
    clarification_text,
    file_links,
    table_text,
)

__all__ = [
    "Decision",
    "answer_text",
    "approval_shown",
    "approval_text",
    "clarification_text",
    "decision_of",
    "file_links",
    "table_text",
]
