"""Kit for writing agents: the agent contract, tools, approvals, prompts and results."""

import bos_chassis  # noqa: F401  # before anything imports gRPC: see there
from bos_agentkit.actions import action_digest, digest_matches
from bos_agentkit.agent import Agent, agent_card
from bos_agentkit.effective_task import effective_task
from bos_agentkit.failures import (
    AgentFailure,
    ApprovalNeeded,
)
from bos_agentkit.input_files import InputFile, InputFiles
from bos_agentkit.model_calls import needed_reply, optional_reply
from bos_agentkit.prompts import (
    format_conversation,
    format_dependencies,
    format_entities,
    prompt_sections,
)
from bos_agentkit.results import awaiting_approval, failed, needs_clarification, succeeded
from bos_agentkit.serving.service import (
    AgentServiceSettings,
    agent_service,
    agent_servicer,
    serve_agent,
)
from bos_agentkit.serving.servicer import AgentServicer
from bos_agentkit.task import AgentTask, Toolbox, ToolContext
from bos_agentkit.tools import AgentTool, tool
from bos_agentkit.trace import TraceRecorder
from bos_agentkit.usage import UsageMeter
from bos_llm.prompts import (
    SETTLED,
    UNTRUSTED_NOTICE,
    format_clarifications,
    format_dates,
    format_user_profile,
    mark_untrusted,
)

__all__ = [
    "SETTLED",
    "UNTRUSTED_NOTICE",
    "Agent",
    "AgentFailure",
    "AgentServiceSettings",
    "AgentServicer",
    "AgentTask",
    "AgentTool",
    "ApprovalNeeded",
    "InputFile",
    "InputFiles",
    "ToolContext",
    "Toolbox",
    "TraceRecorder",
    "UsageMeter",
    "action_digest",
    "agent_card",
    "agent_service",
    "agent_servicer",
    "awaiting_approval",
    "digest_matches",
    "effective_task",
    "failed",
    "format_clarifications",
    "format_conversation",
    "format_dates",
    "format_dependencies",
    "format_entities",
    "format_user_profile",
    "mark_untrusted",
    "needed_reply",
    "needs_clarification",
    "optional_reply",
    "prompt_sections",
    "serve_agent",
    "succeeded",
    "tool",
]
