"""Usage of model calls: tokens, calls, cost."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field


@dataclass(frozen=True, slots=True)
class Usage:
    """Consumption of one or several model calls; add them with ``+``, starting from ``Usage()``."""

    model: str = ""
    """Name of the model; several names are joined by ``", "``, see :attr:`models`."""
    input_tokens: int = 0
    output_tokens: int = 0
    calls: int = 0
    """Replies that were received. Failed attempts are not billed, so they do not count."""
    cost: float | None = None
    """In US dollars; None if no price is known for any of the models."""
    cached_tokens: int = 0
    """Part of ``input_tokens`` that the provider had cached from an earlier call."""

    def __add__(self, other: Usage) -> Usage:
        costs = [cost for cost in (self.cost, other.cost) if cost is not None]
        return Usage(
            model=", ".join(dict.fromkeys((*self.models, *other.models))),
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            calls=self.calls + other.calls,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cost=sum(costs) if costs else None,
        )

    @property
    def models(self) -> tuple[str, ...]:
        """The models that were called, without duplicates."""
        return tuple(self.model.split(", ")) if self.model else ()

    @property
    def cost_micros(self) -> int:
        """The cost in millionths of a US dollar; 0 if it is not known."""
        return round((self.cost or 0.0) * 1_000_000)


class ModelPrice(BaseModel):
    """Price of a model in US dollars per million tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cached_input: float | None = Field(default=None, ge=0)
    """Of input that the provider had at hand from an earlier call; None: as any other."""

    def of(self, input_tokens: int, output_tokens: int, cached_tokens: int = 0) -> float:
        """The cost of one call in US dollars; ``cached_tokens`` are a part of the input."""
        cached = self.input if self.cached_input is None else self.cached_input
        fresh = input_tokens - cached_tokens
        spent = fresh * self.input + cached_tokens * cached + output_tokens * self.output
        return spent / 1_000_000
