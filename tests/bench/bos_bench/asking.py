"""A client that asks and reads the whole stream."""

import time

import grpc

from bos.gateway.v1 import (
    RUN_STATUS_SUCCEEDED,
    AgentRequest,
    AskStreamRequest,
    OrchestratorServiceStub,
)


class Asker:
    """Asks one question again and again.

    Args:
        channel: To the gateway; closed by its owner.
        question: What to ask.
        key: Sent as a bearer token, if any.
    """

    def __init__(self, channel: grpc.aio.Channel, question: str, key: str | None = None) -> None:
        self._stub = OrchestratorServiceStub(channel)
        self._request = AskStreamRequest(request=AgentRequest(question=question))
        self._metadata = (("authorization", f"Bearer {key}"),) if key else None
        self.first_text_s: list[float] = []
        """Times to the first piece of each answer."""

    async def run(self, _: int) -> None:
        """One run.

        Raises:
            RuntimeError: It did not end well, so its time would mean nothing.
        """
        began, first = time.perf_counter(), True
        call = self._stub.AskStream(self._request, timeout=60, metadata=self._metadata)
        async for message in call:
            event = message.event
            if first and event.HasField("answer_delta"):
                first = False
                self.first_text_s.append(time.perf_counter() - began)
        response = event.run_finished.response
        if response.status != RUN_STATUS_SUCCEEDED:
            raise RuntimeError(f"a run ended with status {response.status}")
