"""Embeddings of texts by an OpenAI-compatible endpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bos_errors import InvalidArgument
from bos_llm.budget import current_budget, texts_bound
from bos_llm.calling import CHARS_PER_TOKEN, give_up
from bos_llm.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bos_llm.agent_config import AgentModelConfig
    from bos_llm.endpoints.endpoint import Endpoint
    from bos_llm.endpoints.observe import Observer
    from bos_llm.endpoints.retry import RetryPolicy
    from bos_llm.prices import PriceTable
    from bos_llm.replies.vectors import VectorReply
    from bos_llm.settings import ModelSettings


@dataclass(frozen=True, slots=True)
class Embeddings:
    """Vectors in the order of the texts, all of one length, as the endpoint scales them."""

    vectors: Sequence[Sequence[float]]
    usage: Usage


class EmbeddingModel:
    """An embedding model. Get it from ``Models.embedding``; safe to share.

    Retries, key rotation, time limits, budget and metrics are those of all model calls.
    """

    def __init__(
        self,
        config: AgentModelConfig,
        settings: ModelSettings,
        *,
        prices: PriceTable,
        endpoint: Callable[[], Endpoint],
        retry: RetryPolicy,
        observer: Observer,
    ) -> None:
        self.config = config
        self._settings = settings
        self._prices = prices
        self._endpoint = endpoint
        self._retry = retry
        self._observer = observer

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.config.model

    async def embed(self, texts: Sequence[str], *, dimensions: int | None = None) -> Embeddings:
        """Vectors of ``texts``, in one request.

        Args:
            texts: At least one; none of them blank, which endpoints refuse.
            dimensions: Length of the vectors, for models that can shorten them.

        Raises:
            InvalidArgument: there is no text, or they are too long together.
            ModelNotConfigured: no key or model is set, or the endpoint refuses them.
            ModelUnavailable: also after all retries, or the reply holds no usable vectors.
            ModelRateLimited: also after all retries.
            ModelRequestRejected: the endpoint does not accept the request.
            BudgetExhausted: the tokens of the work in progress do not suffice.
            DeadlineExceeded: the time of the current call is used up.
        """
        if not texts:
            raise InvalidArgument("there is no text to embed")
        if sum(map(len, texts)) > self._settings.max_prompt_chars:
            raise InvalidArgument(
                "the texts to embed are longer than BOS_MODEL_MAX_PROMPT_CHARS together"
            )
        body: dict[str, Any] = {
            "model": self.config.model,
            "input": list(texts),
            "encoding_format": "float",
        }
        if dimensions is not None:
            body["dimensions"] = dimensions
        with self._observer.call("vector", "embeddings") as call:
            endpoint = self._endpoint()

            async def attempt(timeout_s: float) -> tuple[VectorReply, int]:
                budget = current_budget()
                reserved = None if budget is None else await budget.reserve(texts_bound(texts), 1)
                try:
                    reply = await endpoint.embed(body, timeout_s)
                except BaseException as error:
                    give_up(reserved, endpoint, error)
                    raise
                tokens = reply.tokens
                if tokens is None:
                    tokens = sum(map(len, texts)) // CHARS_PER_TOKEN
                if reserved is not None:
                    reserved.settle(tokens)
                return reply, tokens

            reply, tokens = await self._retry.run(
                attempt, endpoint.judge, call.retrying, endpoint.breaker
            )
            usage = self._usage(reply, tokens)
            call.embedded(reply.model, usage)
        return Embeddings(reply.vectors, usage)

    def _usage(self, reply: VectorReply, tokens: int) -> Usage:
        price = self._prices.find(self.config.model, reply.model)
        cost = None if price is None else price.of(tokens, 0)
        return Usage(model=self.config.model, input_tokens=tokens, calls=1, cost=cost)
