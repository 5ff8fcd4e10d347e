"""Client of the memory service: conversations, and what is remembered about the caller."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from bos_client.calling import ServiceClient

if TYPE_CHECKING:
    from bos.common.v1 import LongTermMemory
    from bos.memory.v1 import (
        Conversation,
        ListConversationsResponse,
        ListMessagesResponse,
        MemoryServiceAsyncStub,
    )


class MemoryClient(ServiceClient):
    """A client of the memory service; see :class:`ServiceClient`."""

    async def conversations(
        self, *, page_size: int = 0, page_token: str = "", query: str = ""
    ) -> ListConversationsResponse:
        """A page of conversations, the one used last first; a query finds those with its words."""
        request = ListConversationsRequest(page_size=page_size, page_token=page_token, query=query)
        return await self._unary(self._stub.ListConversations, request)

    async def conversation(self, conversation_id: str) -> Conversation:
        """A conversation with its summary."""
        request = GetConversationRequest(conversation_id=conversation_id)
        return (await self._unary(self._stub.GetConversation, request)).conversation

    async def rename(self, conversation_id: str, title: str) -> Conversation:
        """Give a conversation another title."""
        request = UpdateConversationRequest(conversation_id=conversation_id, title=title)
        changed: Conversation = (
            await self._unary(self._stub.UpdateConversation, request)
        ).conversation
        return changed

    async def delete_conversation(self, conversation_id: str) -> None:
        """Delete a conversation with everything in it."""
        request = DeleteConversationRequest(conversation_id=conversation_id)
        await self._unary(self._stub.DeleteConversation, request)

    async def messages(
        self, conversation_id: str, *, page_size: int = 0, page_token: str = ""
    ) -> ListMessagesResponse:
        """A page of the messages of a conversation, oldest first."""
        request = ListMessagesRequest(
            conversation_id=conversation_id, page_size=page_size, page_token=page_token
        )
        return await self._unary(self._stub.ListMessages, request)

    async def remembered(self) -> LongTermMemory:
        """What is remembered."""
        request = GetLongTermMemoryRequest()
        return (await self._unary(self._stub.GetLongTermMemory, request)).memory

    async def remember(self, memory: LongTermMemory) -> LongTermMemory:
        """Remember exactly this instead; returns it as it is stored."""
        request = UpdateLongTermMemoryRequest(memory=memory)
        stored: LongTermMemory = (
            await self._unary(self._stub.UpdateLongTermMemory, request)
        ).memory
        return stored

    async def forget(self) -> None:
        """Forget everything that is remembered; conversations stay."""
        await self._unary(self._stub.DeleteLongTermMemory, DeleteLongTermMemoryRequest())

    @property
    def _stub(self) -> MemoryServiceAsyncStub:
        return MemoryServiceStub(self._channel)
