"""gRPC servicer of the composer; translates messages and nothing else."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from bos.composer.v1 import ComposerServiceServicer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import grpc

    from bos.composer.v1 import ComposeRequest, ComposeResponse
    from bos_composer.composer import Composer


class ComposerServicer(ComposerServiceServicer):
    """``bos.composer.v1.ComposerService``; requests are validated before they get here."""

    def __init__(self, composer: Composer) -> None:
        self._composer = composer

    async def Compose(
        self, request: ComposeRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[ComposeResponse]:
        """Stream deltas of the answer, then the output."""
        async with aclosing(self._composer.compose(request)) as responses:
            async for response in responses:
                yield response
