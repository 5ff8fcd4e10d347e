"""What prompts are made of: texts in files, dates, what is known of the user, text of others."""

from bos_llm.prompts.dates import current_day, format_dates
from bos_llm.prompts.files import PromptFile, prompt_file
from bos_llm.prompts.sections import (
    NOTHING,
    SETTLED,
    UNTRUSTED_NOTICE,
    format_clarifications,
    format_user_profile,
    mark_untrusted,
)

__all__ = [
    "NOTHING",
    "SETTLED",
    "UNTRUSTED_NOTICE",
    "PromptFile",
    "current_day",
    "format_clarifications",
    "format_dates",
    "format_user_profile",
    "mark_untrusted",
    "prompt_file",
]
