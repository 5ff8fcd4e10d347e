from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest

from bos_rag.service import serve
from bos_rag.settings import RagSettings
from bos_testkit.fixtures.agent_harness import StartAgent

from .scripted_documents import ScriptedDocuments, serving_documents


@pytest.fixture
async def documents() -> ScriptedDocuments:
    return ScriptedDocuments()


@pytest.fixture
async def start(start_agent: StartAgent, stack: AsyncExitStack, documents: Any) -> Any:
    address = await stack.enter_async_context(serving_documents(documents))
    return partial(start_agent, "rag", serve, RagSettings, documents_target=address)


@pytest.fixture
async def rag(start: Any) -> Any:
    return await start(models=False)
