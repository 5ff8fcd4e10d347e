"""gRPC servicers of memory, one for users and one for the gateway; translation only."""

from __future__ import annotations

from datetime import UTC
from typing import Any

from bos.common.v1 import LongTermMemory
from bos.memory.v1 import (
    DeleteConversationRequest,
    DeleteConversationResponse,
    DeleteLongTermMemoryRequest,
    DeleteLongTermMemoryResponse,
    ExtractFactsRequest,
    ExtractFactsResponse,
    GetConversationRequest,
    GetConversationResponse,
    GetLongTermMemoryRequest,
    GetLongTermMemoryResponse,
    ListConversationsRequest,
    ListConversationsResponse,
    ListFactsRequest,
    ListFactsResponse,
    ListMessagesRequest,
    ListMessagesResponse,
    MemoryServiceServicer,
    MemoryTurnServiceServicer,
    OpenTurnRequest,
    OpenTurnResponse,
    RecordTurnRequest,
    RecordTurnResponse,
    UpdateConversationRequest,
    UpdateConversationResponse,
    UpdateLongTermMemoryRequest,
    UpdateLongTermMemoryResponse,
)
from bos_chassis.auth.callers import LOCAL_USER, current_principal
from bos_errors import InvalidArgument, PermissionDenied
from bos_memory.conversations import Conversations
from bos_memory.extraction import Extractor
from bos_memory.facts import checked
from bos_memory.metrics import MemoryMetrics
from bos_memory.origins import Asked
from bos_memory.profiles import Profiles
from bos_memory.summarizing import Summaries
from bos_memory.texts import MAX_STORED_CHARS, on_one_line
from bos_postgres.audit import By

SERVICE_NAME = "bos.memory.v1.MemoryService"
TURN_SERVICE_NAME = "bos.memory.v1.MemoryTurnService"
_RUN_TOKEN = "run_token"  # noqa: S105  a kind of principal


class MemoryServicer(MemoryServiceServicer):
    """Implements ``bos.memory.v1.MemoryService``."""

    def __init__(self, conversations: Conversations, profiles: Profiles) -> None:
        self._conversations = conversations
        self._profiles = profiles

    async def ListConversations(
        self, request: ListConversationsRequest, context: Any
    ) -> ListConversationsResponse:
        """List the caller's conversations."""
        found, token = await self._conversations.list(request, _caller())
        return ListConversationsResponse(conversations=found, next_page_token=token)

    async def GetConversation(
        self, request: GetConversationRequest, context: Any
    ) -> GetConversationResponse:
        """Get one of the caller's conversations."""
        found = await self._conversations.get(request.conversation_id, _caller())
        return GetConversationResponse(conversation=found)

    async def UpdateConversation(
        self, request: UpdateConversationRequest, context: Any
    ) -> UpdateConversationResponse:
        """Change the title of a conversation."""
        title = on_one_line(request.title, MAX_STORED_CHARS)
        if not title:
            raise InvalidArgument.field("title", "must hold a character that can be seen")
        await self._conversations.rename(request.conversation_id, title, _caller(), _by())
        found = await self._conversations.get(request.conversation_id, _caller())
        return UpdateConversationResponse(conversation=found)

    async def DeleteConversation(
        self, request: DeleteConversationRequest, context: Any
    ) -> DeleteConversationResponse:
        """Delete a conversation."""
        await self._conversations.delete(request.conversation_id, _caller(), _by())
        return DeleteConversationResponse()

    async def ListMessages(
        self, request: ListMessagesRequest, context: Any
    ) -> ListMessagesResponse:
        """List messages of a conversation."""
        found, token = await self._conversations.messages(request, _caller())
        return ListMessagesResponse(messages=found, next_page_token=token)

    async def GetLongTermMemory(
        self, request: GetLongTermMemoryRequest, context: Any
    ) -> GetLongTermMemoryResponse:
        """Get the facts remembered about the caller."""
        return GetLongTermMemoryResponse(memory=await self._profiles.get(_caller()))

    async def ListFacts(self, request: ListFactsRequest, context: Any) -> ListFactsResponse:
        """List the facts remembered about the caller, with their origins."""
        return ListFactsResponse(facts=await self._profiles.facts(_caller()))

    async def UpdateLongTermMemory(
        self, request: UpdateLongTermMemoryRequest, context: Any
    ) -> UpdateLongTermMemoryResponse:
        """Replace the facts remembered about the caller."""
        memory = checked(request.memory)
        await self._profiles.replace(_caller(), memory, _by())
        return UpdateLongTermMemoryResponse(memory=memory)

    async def DeleteLongTermMemory(
        self, request: DeleteLongTermMemoryRequest, context: Any
    ) -> DeleteLongTermMemoryResponse:
        """Delete all facts remembered about the caller."""
        await self._profiles.replace(_caller(), LongTermMemory(), _by())
        return DeleteLongTermMemoryResponse()


class MemoryTurnServicer(MemoryTurnServiceServicer):
    """Implements ``bos.memory.v1.MemoryTurnService``."""

    def __init__(
        self,
        conversations: Conversations,
        extractor: Extractor,
        summaries: Summaries,
        metrics: MemoryMetrics,
    ) -> None:
        self._conversations = conversations
        self._extractor = extractor
        self._summaries = summaries
        self._metrics = metrics

    async def OpenTurn(self, request: OpenTurnRequest, context: Any) -> OpenTurnResponse:
        """Get summary, messages and facts as context of a question."""
        _require_run_of(request.user_id)
        conversation_id = request.conversation_id.replace("\0", "")
        return await self._conversations.open_turn(
            request.user_id, conversation_id, request.max_messages
        )

    async def ExtractFacts(
        self, request: ExtractFactsRequest, context: Any
    ) -> ExtractFactsResponse:
        """Extract facts about the author of a question."""
        _require_run_of(request.user_id, request.run_id or None)
        if "\0" in request.run_id:
            raise InvalidArgument.field("run_id", "must not contain U+0000")
        asked = Asked(request.run_id, request.ask_time.ToDatetime(tzinfo=UTC), request.tainted)
        remembered = await self._extractor.extract(request.user_id, request.question, asked)
        return ExtractFactsResponse(remembered=remembered)

    async def RecordTurn(self, request: RecordTurnRequest, context: Any) -> RecordTurnResponse:
        """Store a question with its answer."""
        _require_run_of(request.user_id, request.run_id)
        if "\0" in request.conversation_id + request.run_id:
            raise InvalidArgument.field("conversation_id", "must not contain U+0000")
        recorded = await self._conversations.record(request)
        if recorded is not None:
            self._metrics.turns.inc()
            self._summaries.recorded(recorded)
        return RecordTurnResponse(recorded=recorded is not None)


def _caller() -> str:
    """The caller's user id; all callers are one user where authentication is off.

    Raises:
        PermissionDenied: the caller is a run; runs use ``MemoryTurnService``.
    """
    principal = current_principal()
    if principal is None:
        return LOCAL_USER
    if principal.kind == _RUN_TOKEN:
        raise PermissionDenied("This is for people; a run token does not open it.")
    return principal.user_id


def _by() -> By:
    """The caller as an actor in the audit trail."""
    return By.of(current_principal())


def _require_run_of(user_id: str, run_id: str | None = None) -> None:
    """Refuse all callers except runs of this user, if authentication is on."""
    principal = current_principal()
    if principal is None:
        return
    other = principal.user_id != user_id or run_id not in (None, principal.run_id)
    if principal.kind != _RUN_TOKEN or other:
        raise PermissionDenied("This is for the run that the run token names.")
