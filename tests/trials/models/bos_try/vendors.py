"""Asks one model of each vendor, through LiteLLM, for JSON and for text, on this machine alone.

Shown are the requests that reached the vendor, so that what LiteLLM drops, maps or refuses is seen.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import uvicorn
from pydantic import BaseModel, Field, SecretStr

from bos_chassis.telemetry import Telemetry
from bos_errors import BosError
from bos_llm import Models, ModelSettings, TextDelta, system, user
from bos_testkit.processes import free_port

from .recorder import ANSWER, Recorder
from .servers import ROOT, litellm

LOGS = ROOT / ".data"
VENDORS = {
    "openai-4": "/v1",
    "openai-o": "/v1",
    "openai-5": "/v1",
    "deepseek": "",
    "mistral": "/v1",
    "groq": "/v1",
    "anthropic": "",
    "gemini": "",
    "ollama": "",
}
"""Models of vendors.yaml, and what their addresses end in."""


class Choice(BaseModel):
    """Which table holds the answer."""

    reason: str = Field(description="one line")
    table: str = Field(description="as listed")
    is_clear: bool


@dataclass(frozen=True, slots=True)
class Tried:
    """How one vendor did."""

    vendor: str
    structured: str
    text: str
    requests: tuple[str, ...]
    learnt: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Both calls came to what the vendor said."""
        return self.structured == self.text == "ok"


def main() -> int:
    """Try them all, show what was seen; 0 if every vendor could be used."""
    try:
        tried = asyncio.run(_try_all())
    except BosError as error:
        print(f"Error: {error.message}", file=sys.stderr)
        return 2
    for each in tried:
        print(f"{each.vendor}: JSON {each.structured}; text {each.text}")
        for request in each.requests:
            print(f"    came: {request}")
        for lesson in each.learnt:
            print(f"    learnt: {lesson}")
    unusable = [each.vendor for each in tried if not each.passed]
    print(f"Unusable: {', '.join(unusable)}." if unusable else "Passed: every vendor can be used.")
    return 1 if unusable else 0


async def _try_all() -> list[Tried]:
    recorder = Recorder()
    LOGS.mkdir(parents=True, exist_ok=True)
    async with _served(recorder) as url:
        addresses = {_name(each): f"{url}/{_key(each)}{end}" for each, end in VENDORS.items()}
        async with litellm(LOGS, "vendors.yaml", **addresses) as (proxy, key):
            return [await _try(each, proxy, key, recorder) for each in VENDORS]


async def _try(vendor: str, proxy: str, key: str, recorder: Recorder) -> Tried:
    settings = ModelSettings.load(
        base_url=f"{proxy}/v1", api_key=SecretStr(key), provider="litellm", model=vendor
    )
    async with Models(settings, Telemetry.for_tests("try-vendors")) as models:
        model = models.for_agent("sql")
        messages = [system("You choose tables."), user("Revenue by customer? Tables: orders.")]
        try:
            value = (await model.structured(messages, Choice)).value
            structured = "ok" if value == Choice.model_validate_json(ANSWER) else f"got {value}"
        except BosError as error:
            structured = f"{error.reason}: {error.message}"
        try:
            pieces = [piece async for piece in model.stream(messages)]
            text = "".join(piece.text for piece in pieces if isinstance(piece, TextDelta))
            text = "ok" if text == ANSWER else f"got {text!r}"
        except BosError as error:
            text = f"{error.reason}: {error.message}"
        learnt = tuple(models.learnt("sql"))
    return Tried(vendor, structured, text, tuple(recorder.requests.get(_key(vendor), ())), learnt)


@asynccontextmanager
async def _served(recorder: Recorder) -> AsyncIterator[str]:
    port = free_port()
    server = uvicorn.Server(
        uvicorn.Config(recorder.app, host="127.0.0.1", port=port, log_level="error")
    )
    task = asyncio.create_task(server.serve())
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await task


def _key(vendor: str) -> str:
    return vendor.replace("-", "_")


def _name(vendor: str) -> str:
    return _key(vendor).upper()
