"""Faults of real endpoints that the scripted model can show on request."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal

from bos_testkit.scripted_model.wire import Answer

if TYPE_CHECKING:
    from bos_testkit.scripted_model.wire import FinishReason

Kind = Literal["status", "malformed", "prose", "html", "html_content", "empty", "half", "broken"]

TEXT_CALLS: Final = "<text>"
"""As ``schema`` of a knob: only calls that ask for no JSON schema."""

PROSE: Final = "Certainly! Let me walk you through how I would approach this."
HTML: Final = "<!doctype html><html><body><h1>502 Bad Gateway</h1></body></html>"


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of trouble for the next ``remaining`` calls."""

    kind: Kind
    remaining: int
    schema: str | None
    status: int = 0
    code: str | None = None
    retry_after: str | None = None
    after_chunks: int = 0
    finish_reason: FinishReason = "stop"
    key: str | None = None

    def concerns(self, schema: str | None, key: str) -> bool:
        """Whether a call with ``key``, asking for ``schema`` (None: for text), gets this fault."""
        if self.key is not None and self.key != key:
            return False
        return self.schema is None or self.schema == (TEXT_CALLS if schema is None else schema)

    def spoil(self, answer: Answer) -> Answer:
        """What the model says under a fault of its content; ``answer`` under any other."""
        content = answer.content or ""
        if self.kind == "prose":
            return Answer(PROSE)
        if self.kind == "html_content":
            return Answer(HTML)
        if self.kind == "empty":
            return Answer("")
        if self.kind == "malformed":
            return Answer(content.replace(":", " ", 1) if content else "{,")
        if self.kind == "half":
            return Answer(content[: len(content) // 2], finish_reason=self.finish_reason)
        return answer


@dataclass(slots=True)
class Knobs:
    """Turned by tests and demos while the server runs.

    Every ``…_next`` knob concerns the next ``n`` calls, or those of one ``schema`` only (a schema
    name, or ``TEXT_CALLS``). Several faults are shown one after another, in the order given.
    """

    latency_s: float = 0.0
    """Wait before any reply."""
    chunk_delay_s: float = 0.0
    """Wait before every chunk of a streamed reply but the first."""
    _faults: deque[Fault] = field(default_factory=deque)

    def fail_next(
        self,
        n: int = 1,
        *,
        status: int = 429,
        retry_after: float | str | None = None,
        code: str | None = None,
        schema: str | None = None,
        key: str | None = None,
    ) -> None:
        """An HTTP error; ``retry_after`` is in seconds or a literal header, ``code`` OpenAI's.

        With ``key``, only calls that present this key or token get it.
        """
        header = None if retry_after is None else str(retry_after)
        fault = Fault("status", n, schema, status=status, code=code, retry_after=header, key=key)
        self._add(fault)

    def malformed_json_next(self, n: int = 1, *, schema: str | None = None) -> None:
        """Broken JSON: in the content where a schema is asked for, else in the envelope."""
        self._add(Fault("malformed", n, schema))

    def prose_next(self, n: int = 1, *, schema: str | None = None) -> None:
        """A friendly sentence instead of the answer."""
        self._add(Fault("prose", n, schema))

    def html_next(self, n: int = 1, *, schema: str | None = None, as_content: bool = False) -> None:
        """HTTP 200 with the HTML page of a proxy, or a model that answers in HTML."""
        self._add(Fault("html_content" if as_content else "html", n, schema))

    def empty_next(self, n: int = 1, *, schema: str | None = None) -> None:
        """A reply without content."""
        self._add(Fault("empty", n, schema))

    def half_json_next(
        self,
        n: int = 1,
        *,
        schema: str | None = None,
        finish_reason: FinishReason = "length",
    ) -> None:
        """The first half of the answer."""
        self._add(Fault("half", n, schema, finish_reason=finish_reason))

    def broken_stream_next(
        self, n: int = 1, *, after_chunks: int = 3, schema: str | None = None
    ) -> None:
        """The connection ends after some chunks, or half-way in a reply that is not streamed."""
        self._add(Fault("broken", n, schema, after_chunks=after_chunks))

    def clear(self) -> None:
        """Behave well again."""
        self.latency_s = self.chunk_delay_s = 0.0
        self._faults.clear()

    def take(self, schema: str | None, key: str = "") -> Fault | None:
        """The fault of the call that is being answered, used up by it."""
        for index, fault in enumerate(self._faults):
            if fault.concerns(schema, key):
                if fault.remaining > 1:
                    self._faults[index] = replace(fault, remaining=fault.remaining - 1)
                else:
                    del self._faults[index]
                return fault
        return None

    def _add(self, fault: Fault) -> None:
        if fault.remaining < 1:
            raise ValueError("n must be at least 1")
        self._faults.append(fault)


def as_content(value: object) -> str:
    """A JSON answer as the model writes it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
