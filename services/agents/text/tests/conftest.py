from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from bos.agent.v1 import AgentResult
from bos_testkit.fixtures.agent_harness import AgentHarness, StartAgent
from bos_text.service import serve
from bos_text.settings import TextSettings


class Texts(AgentHarness):
    async def do(
        self,
        task: str,
        tool: str = "",
        *,
        outputs: Mapping[str, Mapping[str, Any]] | None = None,
        tainted: bool = False,
        **inputs: Any,
    ) -> AgentResult:
        fields = {"outputs": outputs, "tool_name": tool, "tainted": tainted}
        result: AgentResult = (await super().do(task, inputs, **fields)).result
        return result


@pytest.fixture
def start(start_agent: StartAgent) -> Any:
    return partial(start_agent, "text", serve, TextSettings, harness=Texts)
