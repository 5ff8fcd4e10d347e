"""What is done where a model gives nothing: calls with a fallback, and words in its place."""

from bos_llm.fallback.calls import RESERVE_S, NoReply, attempt, stream
from bos_llm.fallback.plain_words import plain_sentence

__all__ = ["RESERVE_S", "NoReply", "attempt", "plain_sentence", "stream"]
