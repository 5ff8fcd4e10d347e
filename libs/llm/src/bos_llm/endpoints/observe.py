"""Telemetry of model calls: a span with GenAI names, metrics, and a log line per retry.

Prompts and replies are never captured.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from opentelemetry import trace
from prometheus_client import Counter, Histogram

from bos_chassis.metrics import SharedMetrics, exemplar_of
from bos_chassis.tracing import attributes as names
from bos_errors import BosError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from opentelemetry.util.types import AttributeValue
    from prometheus_client.metrics import MetricWrapperBase

    from bos_chassis.telemetry import Telemetry
    from bos_llm.agent_config import Access, AgentModelConfig
    from bos_llm.endpoints.capabilities import Lesson
    from bos_llm.endpoints.keys import Refusal
    from bos_llm.endpoints.request import Request
    from bos_llm.endpoints.retry import Verdict
    from bos_llm.replies.wire import Reply
    from bos_llm.usage import Usage

_PROVIDERS = {"openai": "openai", "azure": "azure.ai.openai"}
# No text has more characters per token, so fewer tokens were not all of it.
_MOST_CHARS_PER_TOKEN = 8
_SMALL_PROMPT_TOKENS = 200
_BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0)


class ModelMetrics(SharedMetrics):
    """Tokens, calls, durations and cost by agent and model. Get it from :meth:`of`."""

    def __init__(self) -> None:
        labels = ("agent", "model")
        self.tokens = Counter(
            "bos_model_tokens",
            "Tokens sent to and received from models",
            (*labels, "direction"),
            registry=None,
        )
        self.calls = Counter(
            "bos_model_calls",
            "Model calls by outcome; retries are not counted",
            (*labels, "outcome"),
            registry=None,
        )
        self.retries = Counter(
            "bos_model_retries", "Attempts that were repeated", labels, registry=None
        )
        self.duration = Histogram(
            "bos_model_call_duration_seconds",
            "Time of a model call, retries included",
            labels,
            buckets=_BUCKETS_S,
            registry=None,
        )
        self.cost = Counter(
            "bos_model_cost_dollars", "Cost of calls with a known price", labels, registry=None
        )
        self.unpriced = Counter(
            "bos_model_unpriced_calls",
            "Replies of models whose price is not known; they count as costing nothing",
            labels,
            registry=None,
        )
        self.key_rests = Counter(
            "bos_model_key_rests",
            "Times that an endpoint turned a key away: rejected, quota or rate_limited; a key is "
            "known by its profile and its place in it, counted from 1",
            ("provider", "profile", "key", "reason"),
            registry=None,
        )
        self.logged_unpriced: set[str] = set()
        """Models whose missing price was logged."""
        self.logged_cut: set[str] = set()
        """Models of which it was logged that they do not read whole prompts."""

    def parts(self) -> Iterable[MetricWrapperBase]:
        """All of them."""
        return (
            self.tokens,
            self.calls,
            self.retries,
            self.duration,
            self.cost,
            self.unpriced,
            self.key_rests,
        )


class KeyObserver:
    """Watches the keys of one endpoint; their values are never recorded."""

    def __init__(self, telemetry: Telemetry, metrics: ModelMetrics, access: Access) -> None:
        self._log = telemetry.logger("bos_llm").bind(
            provider=access.provider, profile=access.profile, variable=access.key_variable
        )
        self._metrics = metrics
        self._labels = (access.provider, access.profile)

    def __call__(self, index: int, why: Refusal, rest_s: float) -> None:
        """Record that the key at ``index`` was turned away and rests for ``rest_s`` seconds."""
        key = index + 1
        self._metrics.key_rests.labels(*self._labels, str(key), why).inc()
        self._log.warning("model key turned away", key=key, reason=why, rest_s=round(rest_s, 3))


class Observer:
    """Watches the calls of one agent."""

    def __init__(
        self, telemetry: Telemetry, metrics: ModelMetrics, agent: str, config: AgentModelConfig
    ) -> None:
        self._tracer = telemetry.tracer
        self._log = telemetry.logger("bos_llm").bind(agent=agent, model=config.model)
        self._metrics = metrics
        self._agent = agent
        self._config = config

    @contextmanager
    def call(self, output_type: str, operation: str = names.CHAT) -> Iterator[ObservedCall]:
        """A span and the metrics of one call; an exception becomes its outcome."""
        observed = ObservedCall(self, self._start(output_type, operation))
        started = time.monotonic()
        try:
            yield observed
        except BaseException as error:
            observed.failed(error)
            raise
        finally:
            labels = (self._agent, self._config.model)
            seconds = time.monotonic() - started
            self._metrics.duration.labels(*labels).observe(seconds, exemplar_of(observed.span))
            self._metrics.calls.labels(*labels, observed.outcome).inc()
            observed.span.end()

    def _start(self, output_type: str, operation: str) -> trace.Span:
        attributes: dict[str, AttributeValue] = {
            names.GEN_AI_OPERATION_NAME: operation,
            names.GEN_AI_PROVIDER_NAME: _PROVIDERS.get(
                self._config.provider, self._config.provider
            ),
            names.GEN_AI_REQUEST_MODEL: self._config.model,
            names.GEN_AI_OUTPUT_TYPE: output_type,
            names.GEN_AI_AGENT_NAME: self._agent,
        }
        if self._config.temperature is not None:
            attributes[names.GEN_AI_REQUEST_TEMPERATURE] = self._config.temperature
        # Not made current: a stream's generator would leave it in the context of its consumer.
        return self._tracer.start_span(
            f"{operation} {self._config.model}", kind=trace.SpanKind.CLIENT, attributes=attributes
        )


class ObservedCall:
    """One call being observed."""

    def __init__(self, observer: Observer, span: trace.Span) -> None:
        self._observer = observer
        self.span = span
        self.outcome = "ok"

    def adapting(self, lesson: Lesson) -> None:
        """Record that the endpoint refused a parameter and is asked again in another way."""
        observer = self._observer
        self.span.add_event("bos.model.adapted", {"parameter": lesson.parameter})
        observer._log.warning("the model endpoint " + lesson.text, parameter=lesson.parameter)

    def replied(self, request: Request, reply: Reply, usage: Usage) -> None:
        """Record a reply and what it consumed."""
        self._warn_if_cut(request, usage)
        self._consumed(reply.model, usage)
        if reply.finish_reason is not None:
            self.span.set_attribute(names.GEN_AI_RESPONSE_FINISH_REASONS, [reply.finish_reason])

    def embedded(self, model: str, usage: Usage) -> None:
        """Record vectors of a model, as the endpoint names it, and what they consumed."""
        self._consumed(model, usage)

    def _consumed(self, model: str, usage: Usage) -> None:
        metrics, labels = self._observer._metrics, (self._observer._agent, usage.model)
        metrics.tokens.labels(*labels, "input").inc(usage.input_tokens)
        metrics.tokens.labels(*labels, "output").inc(usage.output_tokens)
        if usage.cost is not None:
            metrics.cost.labels(*labels).inc(usage.cost)
        else:
            metrics.unpriced.labels(*labels).inc()
            if usage.model not in metrics.logged_unpriced:
                metrics.logged_unpriced.add(usage.model)
                self._observer._log.warning(
                    "no price is known for this model, so its cost counts as 0; set it in "
                    "BOS_MODEL_PRICES or BOS_MODEL_PRICES_FILE"
                )
        self.span.set_attributes(
            {
                names.GEN_AI_RESPONSE_MODEL: model,
                names.GEN_AI_USAGE_INPUT_TOKENS: usage.input_tokens,
                names.GEN_AI_USAGE_OUTPUT_TOKENS: usage.output_tokens,
            }
        )

    def _warn_if_cut(self, request: Request, usage: Usage) -> None:
        """A server with a small context drops the beginning of a prompt and says nothing of it."""
        least = sum(len(message.text) for message in request.messages) // _MOST_CHARS_PER_TOKEN
        logged = self._observer._metrics.logged_cut
        if usage.input_tokens < least - _SMALL_PROMPT_TOKENS and usage.model not in logged:
            logged.add(usage.model)
            self._observer._log.warning(
                "the endpoint has read less than it was sent: give its server a larger context "
                "(Ollama: OLLAMA_CONTEXT_LENGTH=16384)",
                input_tokens=usage.input_tokens,
                expected_tokens=least,
            )

    def unusable(self) -> None:
        """The reply is not what was asked for; the caller may still repair it."""
        self.outcome = "model_output_invalid"
        self.span.set_attribute(names.ERROR_TYPE, self.outcome)

    def retrying(self, verdict: Verdict, delay_s: float) -> None:
        """Record that an attempt failed and is repeated after ``delay_s``."""
        observer = self._observer
        observer._metrics.retries.labels(observer._agent, observer._config.model).inc()
        reason = verdict.error.reason
        self.span.add_event("bos.model.retry", {"reason": reason, "delay_s": delay_s})
        observer._log.warning("model call is repeated", reason=reason, delay_s=round(delay_s, 3))

    def failed(self, error: BaseException) -> None:
        """Record the exception that ends the call; only its kind: the text may be anyone's."""
        if isinstance(error, BosError):
            self.outcome = error.reason.lower()
        elif isinstance(error, asyncio.CancelledError | GeneratorExit):
            self.outcome = "cancelled"
        else:
            self.outcome = "internal"
        self.span.set_attribute(names.ERROR_TYPE, self.outcome)
        self.span.set_status(trace.StatusCode.ERROR)
