"""What a script without Bos would do: the diamond's five model calls in one asyncio loop.

The same bodies in the same order, as much side by side as the plan allows; the plan is read and
the answer streamed, nothing is stored, checked, traced or retried except by the client.
"""

import asyncio
import json
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from typing import Any, Self

import aiohttp
from openai import AsyncOpenAI, DefaultAioHttpClient

from bos_bench.diamond_model import ANSWER, PLAN

_DATA = b"data: "
_DONE = b"[DONE]"
_KEEP_ALIVE_S = 2.0


class BareDiamond(ABC):
    """One way of calling; an async context manager.

    Args:
        base_url: Of the model.
        key: Of the model.
        bodies: What to send: copies of what the services sent, by call.
    """

    def __init__(self, base_url: str, key: str, bodies: Mapping[str, Any]) -> None:
        self.base_url, self.key = base_url, key
        self._bodies = bodies
        self.first_text_s: list[float] = []
        """Times from the question to the first piece of each answer."""

    @abstractmethod
    async def __aenter__(self) -> Self: ...

    @abstractmethod
    async def __aexit__(self, *exc_info: object) -> None: ...

    @abstractmethod
    async def whole(self, body: dict[str, Any]) -> str:
        """The text of a reply."""

    @abstractmethod
    def pieces(self, body: dict[str, Any]) -> AsyncIterator[str]:
        """The pieces of a streamed reply."""

    async def run(self, _: int) -> None:
        """One run: plan, two agents side by side, the one that needs both, the answer.

        Raises:
            RuntimeError: There was no answer, so its time would mean nothing.
        """
        began = time.perf_counter()
        steps = json.loads(await self.whole(self._bodies[PLAN]))["steps"]
        first = [step["agent"] for step in steps if not step["depends_on"]]
        await asyncio.gather(*(self.whole(self._bodies[name]) for name in first))
        for step in steps:
            if step["depends_on"]:
                await self.whole(self._bodies[step["agent"]])
        texts: list[str] = []
        async for text in self.pieces(self._bodies[ANSWER]):
            if not texts:
                self.first_text_s.append(time.perf_counter() - began)
            texts.append(text)
        if not "".join(texts):
            raise RuntimeError("a bare run ended without an answer")


class OpenAiDiamond(BareDiamond):
    """The ``openai`` package as its documentation shows it, on its default transport."""

    async def __aenter__(self) -> Self:
        self._client = AsyncOpenAI(base_url=self.base_url, api_key=self.key)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._client.close()

    async def whole(self, body: dict[str, Any]) -> str:
        completion = await self._client.chat.completions.create(**body)
        return completion.choices[0].message.content or ""

    async def pieces(self, body: dict[str, Any]) -> AsyncIterator[str]:
        async for chunk in await self._client.chat.completions.create(**body):
            if chunk.choices and chunk.choices[0].delta.content:
                yield chunk.choices[0].delta.content


class AiohttpDiamond(OpenAiDiamond):
    """The same on the package's aiohttp transport."""

    async def __aenter__(self) -> Self:
        self._client = AsyncOpenAI(
            base_url=self.base_url, api_key=self.key, http_client=DefaultAioHttpClient()
        )
        return self


class HttpDiamond(BareDiamond):
    """Plain HTTP requests and ``json``: the least that the calls can cost in Python."""

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self._session = await stack.enter_async_context(
                aiohttp.ClientSession(
                    # Connections that idle while others have their turn are closed by the server.
                    connector=aiohttp.TCPConnector(keepalive_timeout=_KEEP_ALIVE_S),
                    headers={"authorization": f"Bearer {self.key}"},
                    raise_for_status=True,
                )
            )
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._stack.aclose()

    async def whole(self, body: dict[str, Any]) -> str:
        async with self._session.post(f"{self.base_url}/chat/completions", json=body) as response:
            reply = await response.json()
        return str(reply["choices"][0]["message"]["content"])

    async def pieces(self, body: dict[str, Any]) -> AsyncIterator[str]:
        async with self._session.post(f"{self.base_url}/chat/completions", json=body) as response:
            async for line in response.content:
                if not line.startswith(_DATA) or (data := line[len(_DATA) :].strip()) == _DONE:
                    continue
                choices = json.loads(data)["choices"]
                if choices and choices[0]["delta"].get("content"):
                    yield choices[0]["delta"]["content"]


BARE: Mapping[str, type[BareDiamond]] = {
    "openai": OpenAiDiamond,
    "aiohttp": AiohttpDiamond,
    "http": HttpDiamond,
}
"""The ways, by their name in figures."""
