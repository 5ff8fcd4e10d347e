"""Grade of an answer by one criterion, and the model calls that grading took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Grade:
    """Whether an answer meets a criterion and why, or why that could not be found out."""

    met: bool
    reason: str
    error: bool = False
    """The model gave no verdict; ``reason`` says why."""


@dataclass(frozen=True, slots=True)
class Spent:
    """Model calls of grading, and what they cost; apart from those of the runs."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_micros: int = 0
    """In millionths of a US dollar; 0 where no price is named."""

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.calls + other.calls,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cost_micros + other.cost_micros,
        )

    def as_json(self) -> dict[str, Any]:
        """Calls, tokens and cost under the names that those of runs have."""
        tokens = self.input_tokens + self.output_tokens
        return {"calls": self.calls, "tokens": tokens, "cost_micros": self.cost_micros}
