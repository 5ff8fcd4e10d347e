"""Calls of the memory service: conversations, and what is remembered about whoever calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import grpc

from bos.memory.v1 import (
    DeleteConversationRequest,
    DeleteLongTermMemoryRequest,
    GetConversationRequest,
    GetLongTermMemoryRequest,
    ListConversationsRequest,
    ListMessagesRequest,
    MemoryServiceStub,
    UpdateConversationRequest,
    UpdateLongTermMemoryRequest,
)
from bos_client.errors import from_rpc_error

if TYPE_CHECKING:
    from bos.common.v1 import LongTermMemory
    from bos.memory.v1 import Conversation, ListConversationsResponse, ListMessagesResponse
    from bos_client.sign_in import TokenSource

_TIMEOUT_S = 30.0


class MemoryClient:
    """A client of the memory service; an async context manager.

    Every method raises :class:`bos_client.errors.BosError` and nothing else of gRPC.

    Args:
        target: ``host:port`` or a gRPC target URI.
        api_key: Sent as a bearer token.
        tokens: Where the bearer token of each call comes from, instead of a key.
        credentials: For TLS; None connects in plain text.
    """

    def __init__(
        self,
        target: str,
        *,
        api_key: str | None = None,
        tokens: TokenSource | None = None,
        credentials: grpc.ChannelCredentials | None = None,
    ) -> None:
        self._target = target
        self._api_key = api_key
        self._tokens = tokens
        self._credentials = credentials
        self._channel: grpc.aio.Channel | None = None

    async def __aenter__(self) -> Self:
        if self._credentials is None:
            self._channel = grpc.aio.insecure_channel(self._target)
        else:
            self._channel = grpc.aio.secure_channel(self._target, self._credentials)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    async def conversations(
        self, *, page_size: int = 0, page_token: str = ""
    ) -> ListConversationsResponse:
        """A page of conversations, the one used last first."""
        request = ListConversationsRequest(page_size=page_size, page_token=page_token)
        page: ListConversationsResponse = await self._call("ListConversations", request)
        return page

    async def conversation(self, conversation_id: str) -> Conversation:
        """A conversation with its summary."""
        request = GetConversationRequest(conversation_id=conversation_id)
        found: Conversation = (await self._call("GetConversation", request)).conversation
        return found

    async def rename(self, conversation_id: str, title: str) -> Conversation:
        """Give a conversation another title."""
        request = UpdateConversationRequest(conversation_id=conversation_id, title=title)
        changed: Conversation = (await self._call("UpdateConversation", request)).conversation
        return changed

    async def delete_conversation(self, conversation_id: str) -> None:
        """Delete a conversation with everything in it."""
        request = DeleteConversationRequest(conversation_id=conversation_id)
        await self._call("DeleteConversation", request)

    async def messages(
        self, conversation_id: str, *, page_size: int = 0, page_token: str = ""
    ) -> ListMessagesResponse:
        """A page of the messages of a conversation, oldest first."""
        request = ListMessagesRequest(
            conversation_id=conversation_id, page_size=page_size, page_token=page_token
        )
        page: ListMessagesResponse = await self._call("ListMessages", request)
        return page

    async def remembered(self) -> LongTermMemory:
        """What is remembered."""
        request = GetLongTermMemoryRequest()
        memory: LongTermMemory = (await self._call("GetLongTermMemory", request)).memory
        return memory

    async def remember(self, memory: LongTermMemory) -> LongTermMemory:
        """Remember exactly this instead; returns it as it is stored."""
        request = UpdateLongTermMemoryRequest(memory=memory)
        stored: LongTermMemory = (await self._call("UpdateLongTermMemory", request)).memory
        return stored

    async def forget(self) -> None:
        """Forget everything that is remembered; conversations stay."""
        await self._call("DeleteLongTermMemory", DeleteLongTermMemoryRequest())

    async def _call(self, method: str, request: Any) -> Any:
        if self._channel is None:
            raise RuntimeError("use the client inside `async with`")
        credential = self._api_key if self._tokens is None else await self._tokens.access_token()
        metadata = (("authorization", f"Bearer {credential}"),) if credential else ()
        stub = MemoryServiceStub(self._channel)
        call = getattr(stub, method)(request, timeout=_TIMEOUT_S, metadata=metadata)
        try:
            return await call
        except grpc.RpcError as error:
            raise from_rpc_error(error) from error
        finally:
            call.cancel()
