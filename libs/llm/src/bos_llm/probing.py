"""Trying out a model as Bos uses it: a text, JSON by a schema, a stream; and what its server says.

For operators: ``bos doctor --model`` shows one line per probe.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, Field

from bos_errors import BosError
from bos_llm.messages import system, user
from bos_llm.model import TextDelta
from bos_llm.prices import announced_end

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator

    from bos_llm.endpoints.endpoint import Endpoint
    from bos_llm.model import Model
    from bos_llm.models import Models

_SMALL_WINDOW: Final = 12_000
"""Tokens below which prompts with a schema of many tables may be cut."""
_ASK: Final = (system("You answer in as few words as possible."), user("Say: ok"))
_ASK_JSON: Final = (system("You answer as JSON."), user("Is 7 a prime number?"))


class ProbeAnswer(BaseModel):
    """The reply wanted by the JSON probe."""

    reason: str = Field(description="Why, in three words")
    prime: bool = Field(description="Whether it is")


@dataclass(frozen=True, slots=True)
class Probe:
    """Outcome of one probe; of what the endpoint wrote it may hold a refusal, nothing else."""

    name: str
    ok: bool
    text: str
    advice: str = ""


async def probe(models: Models, agent: str, *, timeout_s: float) -> list[Probe]:
    """Try the model of ``agent`` in all ways at once; takes at most ``timeout_s`` seconds."""
    model = models.for_agent(agent)
    # The text comes first: what it teaches about the endpoint need not be learnt three times.
    started = time.monotonic()
    text = await _bounded("text", _text(model), timeout_s / 2)
    left_s = max(0.1, timeout_s - (time.monotonic() - started))
    if not text.ok:
        return [text]
    rest = await asyncio.gather(
        _bounded("json", _json(model, models), left_s),
        _bounded("stream", _stream(model), left_s),
        _bounded("server", _server(models, agent), left_s),
    )
    lessons = models.learnt(agent)
    learnt = (
        Probe("learnt", ok=True, text="the endpoint " + "; ".join(lessons)) if lessons else None
    )
    return [text, *rest, *([learnt] if learnt else [])]


async def _bounded(name: str, work: Awaitable[Probe], timeout_s: float) -> Probe:
    try:
        async with asyncio.timeout(timeout_s):
            return await work
    except TimeoutError:
        return Probe(
            name,
            ok=False,
            text=f"no reply within {timeout_s:.3g} s",
            advice="Check its address, or try again: it may be starting. For a slow model raise "
            "the times named in docs/models.md.",
        )
    except BosError as error:
        return Probe(name, ok=False, text=error.message, advice="See the variables it names.")


async def _text(model: Model) -> Probe:
    started = time.monotonic()
    done = await model.text(_ASK)
    seconds = time.monotonic() - started
    return Probe("text", ok=True, text=f"replied in {seconds:.1f} s{_speed(done.usage, seconds)}")


async def _json(model: Model, models: Models) -> Probe:
    started = time.monotonic()
    done = await model.structured(_ASK_JSON, ProbeAnswer)
    seconds = time.monotonic() - started
    how = {
        "json_schema": "by a JSON schema",
        "json_object": "as any JSON object, its form in the prompt",
        "prompt": "by words in the prompt alone",
    }[models.takes(model.agent).structured]
    again = ", after it was asked once more" if done.repaired else ""
    return Probe("json", ok=True, text=f"JSON {how} in {seconds:.1f} s{again}")


async def _stream(model: Model) -> Probe:
    started, first, pieces = time.monotonic(), 0.0, 0
    async with aclosing(model.stream(_ASK)) as items:
        async for item in items:
            if isinstance(item, TextDelta):
                first = first or time.monotonic() - started
                pieces += 1
    return Probe("stream", ok=True, text=f"first text of a stream after {first:.1f} s")


async def _server(models: Models, agent: str) -> Probe:
    """What the server says about the model: whether it is there, its window, its end."""
    model = models.for_agent(agent).config.model
    facts = list(_facts(await _listed(models.endpoint_of(agent)), model))
    end = announced_end(model)
    found = [text for text, _ in facts]
    advice = next((advice for _, advice in facts if advice), "")
    if end is not None and not any("ends on" in text for text in found):
        found.append(f"its provider ends it on {end.isoformat()}")
        advice = advice or "Choose another model (BOS_MODEL, <AGENT>_MODEL)."
    return Probe(
        "server", ok=not advice, text="; ".join(found) or "no further details", advice=advice
    )


async def _listed(endpoint: Endpoint) -> list[dict[str, Any]]:
    """The server's own list of models; empty where it has none."""
    try:
        answer = await endpoint.served_models(timeout_s=5.0)
    except Exception as error:
        if endpoint.judge(error) is None:
            raise
        return []
    entries = answer.get("data") if isinstance(answer, dict) else None
    return [each for each in entries if isinstance(each, dict)] if isinstance(entries, list) else []


def _facts(listed: list[dict[str, Any]], model: str) -> Iterator[tuple[str, str]]:
    """What is known of ``model``, with advice where something is wrong."""
    own = next((each for each in listed if each.get("id") == model), None)
    if own is None:
        # Many servers take names that they do not list.
        return
    window = _window(own)
    if window:
        small = window < _SMALL_WINDOW
        advice = (
            f"Give the server a context of 16384 tokens or more ({window} are few for a schema)."
        )
        yield f"a window of {window} tokens", advice if small else ""
    ends = own.get("shutdown_date")
    try:
        last_day = date.fromisoformat(ends) if isinstance(ends, str) else None
    except ValueError:
        last_day = None
    if last_day is not None:
        yield f"its provider ends it on {last_day}", "Choose another model (BOS_MODEL)."


def _window(entry: dict[str, Any]) -> int:
    """The context of a model in tokens, as vLLM, llama.cpp, OpenRouter and others call it."""
    meta = entry.get("meta")
    places = [entry, meta if isinstance(meta, dict) else {}]
    for place in places:
        for name in ("max_model_len", "n_ctx", "context_length", "context_window", "max_context"):
            value = place.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
    return 0


def _speed(usage: Any, seconds: float) -> str:
    if usage.output_tokens < 1 or seconds <= 0:
        return ""
    return f", {usage.output_tokens / seconds:.0f} tokens/s"
