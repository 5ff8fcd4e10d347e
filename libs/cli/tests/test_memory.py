"""Conversations and memory from the command line, against a memory service that is a double."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from bos.common.v1 import CriticalFacts, LongTermMemory, MessageRole
from bos.memory.v1 import (
    Conversation,
    DeleteConversationResponse,
    DeleteLongTermMemoryResponse,
    GetConversationResponse,
    GetLongTermMemoryResponse,
    ListConversationsResponse,
    ListMessagesResponse,
    MemoryServiceServicer,
    Message,
    UpdateConversationResponse,
    UpdateLongTermMemoryResponse,
)
from bos_errors import NotFound
from bos_testkit.scripted_gateway import KEY

from .commands import bos_with_input, serving


@dataclass
class Memory(MemoryServiceServicer):
    """Holds one conversation of four messages, handed out in pages of three."""

    address: str = ""
    titles: dict[str, str] = field(default_factory=lambda: {"talk": "Revenue"})
    known: LongTermMemory = field(
        default_factory=lambda: LongTermMemory(critical=CriticalFacts(user_name="Ada"))
    )

    def _conversation(self, conversation_id: str) -> Conversation:
        if conversation_id not in self.titles:
            raise NotFound("There is no such conversation.")
        title = self.titles[conversation_id]
        return Conversation(conversation_id=conversation_id, title=title, turn_count=2)

    async def ListConversations(self, request: Any, context: Any) -> ListConversationsResponse:
        found = [
            self._conversation(each)
            for each, title in self.titles.items()
            if request.query in title
        ]
        return ListConversationsResponse(conversations=found)

    async def GetConversation(self, request: Any, context: Any) -> GetConversationResponse:
        return GetConversationResponse(conversation=self._conversation(request.conversation_id))

    async def UpdateConversation(self, request: Any, context: Any) -> UpdateConversationResponse:
        self.titles[request.conversation_id] = request.title
        return UpdateConversationResponse(conversation=self._conversation(request.conversation_id))

    async def DeleteConversation(self, request: Any, context: Any) -> DeleteConversationResponse:
        self._conversation(request.conversation_id)
        del self.titles[request.conversation_id]
        return DeleteConversationResponse()

    async def ListMessages(self, request: Any, context: Any) -> ListMessagesResponse:
        roles = [MessageRole.MESSAGE_ROLE_USER, MessageRole.MESSAGE_ROLE_ASSISTANT] * 2
        said = [Message(role=role, content=f"said {n}") for n, role in enumerate(roles)]
        if request.page_token:
            return ListMessagesResponse(messages=said[3:])
        return ListMessagesResponse(messages=said[:3], next_page_token="3")

    async def GetLongTermMemory(self, request: Any, context: Any) -> GetLongTermMemoryResponse:
        return GetLongTermMemoryResponse(memory=self.known)

    async def UpdateLongTermMemory(
        self, request: Any, context: Any
    ) -> UpdateLongTermMemoryResponse:
        self.known = request.memory
        return UpdateLongTermMemoryResponse(memory=self.known)

    async def DeleteLongTermMemory(
        self, request: Any, context: Any
    ) -> DeleteLongTermMemoryResponse:
        self.known = LongTermMemory()
        return DeleteLongTermMemoryResponse()


@pytest.fixture
async def memory() -> AsyncIterator[Memory]:
    served = Memory()
    async with serving(served) as served.address:
        yield served


async def test_memory_is_shown_and_forgotten(memory: Memory) -> None:
    async def bos(*arguments: str) -> tuple[int, str]:
        environment = {
            "BOS_TARGET": "127.0.0.1:1",
            "BOS_MEMORY_TARGET": memory.address,
            "BOS_API_KEY": KEY,
        }
        return await bos_with_input("n\n", *arguments, env=environment)

    assert await bos("memory", "show") == (0, "Name: Ada\n")
    memory.known.tainted = True
    assert "content that others wrote" in (await bos("memory", "show"))[1]
    assert (await bos("memory", "confirm"))[0] == 1  # asked, and declined
    assert memory.known.tainted
    assert (await bos("memory", "confirm", "--yes"))[1].endswith("Confirmed.\n")
    assert memory.known == LongTermMemory(critical=CriticalFacts(user_name="Ada"))
    assert (await bos("memory", "forget"))[0] == 1  # asked, and declined
    assert memory.known.critical.user_name == "Ada"
    assert await bos("memory", "forget", "--yes") == (0, "Forgotten.\n")
    assert await bos("memory", "show") == (0, "Nothing is remembered about you.\n")

    code, said = await bos("conversations", "list")
    assert (code, "talk" in said, "Revenue" in said) == (0, True, True)
    code, said = await bos("conversations", "show", "talk")
    assert said.split("\n\n") == [
        "Revenue",
        "You: said 0",
        "Bos: said 1",
        "You: said 2",
        "Bos: said 3\n",
    ]
    assert await bos("conversations", "rename", "talk", "My figures") == (0, "My figures\n")
    assert "My figures" in (await bos("conversations", "list", "--query", "fig"))[1]
    assert await bos("conversations", "list", "--query", "pump") == (0, "no conversations\n")
    assert await bos("conversations", "delete", "talk") == (0, "Deleted.\n")
    assert (await bos("conversations", "delete", "talk"))[0] == 2
    assert await bos("conversations", "list") == (0, "no conversations\n")
