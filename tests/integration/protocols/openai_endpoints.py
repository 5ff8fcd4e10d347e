"""The protocols service of OpenAI's API, by its own Python client."""

import asyncio
from abc import abstractmethod
from typing import Any

from openai import APIStatusError, AsyncOpenAI
from openai.types.responses import Response

from .endpoint import Endpoint, Refused, Seen, State
from .harness import Harness

_LOOK_S = 0.05


def client_of(harness: Harness, user: str) -> AsyncOpenAI:
    """A user's client that tries once, so that the first answer is seen."""
    return AsyncOpenAI(
        base_url=f"{harness.rest_url}/v1", api_key=harness.token(user), max_retries=0, timeout=60
    )


class _OpenAIEndpoint(Endpoint):
    """What both have: a run is seen, resumed and cancelled by the id of its response."""

    async def __aenter__(self) -> Endpoint:
        self._openai = AsyncOpenAI(
            base_url=f"{self.harness.rest_url}/v1", api_key=self.token, max_retries=8
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._openai.close()

    @abstractmethod
    def _response_id(self, handle: Any) -> str:
        """Id of the response that a handle is about."""

    async def resume(self, dropped: Seen) -> Seen:
        """Behind the last event; what an attempt that broke off has said is dropped."""
        response_id = self._response_id(dropped.handle)
        after = dropped.handle[1]
        stream = await self._openai.responses.retrieve(
            response_id, stream=True, starting_after=after
        )
        text, last, ended = dropped.text, after, None
        async for event in stream:
            assert event.sequence_number > last
            last = event.sequence_number
            if event.type == "response.output_text.delta":
                text += event.delta
            elif event.type == "response.output_item.done":
                text = "" if event.item.status == "incomplete" else text
            elif event.type == "response.completed":
                ended = event.response
        assert ended is not None
        assert text == ended.output_text
        return _seen(ended)

    async def cancel(self, dropped: Seen) -> None:
        try:
            await self._openai.responses.cancel(self._response_id(dropped.handle))
        except APIStatusError as error:
            raise Refused(error.message) from None

    async def look(self, dropped: Seen) -> Seen:
        try:
            response_id = self._response_id(dropped.handle)
            response = await self._openai.responses.retrieve(response_id)
            while response.status == "in_progress":
                await asyncio.sleep(_LOOK_S)
                response = await self._openai.responses.retrieve(response_id)
        except APIStatusError as error:
            raise Refused(error.message) from None
        return _seen(response)


class ResponsesEndpoint(_OpenAIEndpoint):
    """By ``/v1/responses``."""

    name = "responses"

    def _response_id(self, handle: Any) -> str:
        return str(handle[0])

    async def ask(self, question: str) -> Seen:
        return _seen(await self._openai.responses.create(model="bos", input=question))

    async def stream(self, question: str) -> Seen:
        pieces: list[str] = []
        stream = await self._openai.responses.create(model="bos", input=question, stream=True)
        async for event in stream:
            if event.type == "response.output_text.delta":
                pieces.append(event.delta)
            elif event.type == "response.completed":
                seen = _seen(event.response)
        seen.pieces = pieces
        return seen

    async def drop(self, question: str) -> Seen:
        stream = await self._openai.responses.create(model="bos", input=question, stream=True)
        async with stream:
            async for event in stream:
                if event.type == "response.created":
                    response_id = event.response.id
                elif event.type == "response.output_text.delta":
                    handle = (response_id, event.sequence_number)
                    return Seen(State.UNDER_WAY, event.delta, handle=handle)
        raise AssertionError("there was no text")

    async def reply(self, waiting: Seen, text: str) -> Seen:
        previous = self._response_id(waiting.handle)
        return _seen(
            await self._openai.responses.create(
                model="bos", input=text, previous_response_id=previous
            )
        )


class CompletionsEndpoint(_OpenAIEndpoint):
    """By ``/v1/chat/completions``, which has no word for resuming, cancelling or looking.

    The id of a completion is that of a response but for its beginning, so ``/v1/responses`` does
    it.
    It does not say how far a stream was seen: it is read again from its beginning.
    """

    name = "completions"

    def _response_id(self, handle: Any) -> str:
        return "resp_" + str(handle[0]).removeprefix("chatcmpl-")

    async def ask(self, question: str) -> Seen:
        return await self._turn([{"role": "user", "content": question}])

    async def stream(self, question: str) -> Seen:
        stream = await self._openai.chat.completions.create(
            model="bos",
            messages=[{"role": "user", "content": question}],
            stream=True,
            stream_options={"include_usage": True},
        )
        pieces: list[str] = []
        usage = None
        async for chunk in stream:
            usage = chunk.usage or usage
            pieces += [choice.delta.content or "" for choice in chunk.choices]
        assert usage is not None
        text = "".join(pieces)
        return Seen(State.ANSWERED, text, _rows(text), chunk.id, pieces)

    async def drop(self, question: str) -> Seen:
        stream = await self._openai.chat.completions.create(
            model="bos", messages=[{"role": "user", "content": question}], stream=True
        )
        async with stream:
            async for chunk in stream:
                if chunk.choices[0].delta.content:
                    return Seen(State.UNDER_WAY, "", handle=(chunk.id, -1))
        raise AssertionError("there was no text")

    async def resume(self, dropped: Seen) -> Seen:
        return await self.look(dropped)

    async def reply(self, waiting: Seen, text: str) -> Seen:
        _, said = waiting.handle
        return await self._turn([*said, {"role": "user", "content": text}])

    async def _turn(self, messages: list[Any]) -> Seen:
        completion = await self._openai.chat.completions.create(model="bos", messages=messages)
        text = completion.choices[0].message.content or ""
        bos = completion.model_extra["bos"] if completion.model_extra else {}
        said = [*messages, {"role": "assistant", "content": text}]
        return Seen(_state(bos), text, _rows(text), (completion.id, said))


def _state(metadata: dict[str, str]) -> State:
    if "bos_approval_id" in metadata or "approval_id" in metadata:
        return State.WAITS_FOR_APPROVAL
    status = metadata.get("bos_status") or metadata.get("status")
    return {
        "CLARIFICATION_NEEDED": State.ASKS_BACK,
        "CANCELLED": State.CANCELLED,
        "FAILED": State.FAILED,
        None: State.UNDER_WAY,
    }.get(status, State.ANSWERED)


def _seen(response: Response) -> Seen:
    text = response.output_text
    state = _state(response.metadata or {})
    return Seen(state, text, _rows(text), (response.id, -1))


def _rows(text: str) -> list[list[str]]:
    """Rows of the first table in Markdown."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
