"""The one way to call a model: providers, structured output, streaming, usage."""

from bos_llm.agent_config import AgentModelConfig, current_model_choice, set_model_choice
from bos_llm.budget import TokenBudget, current_budget, set_budget
from bos_llm.embeddings import EmbeddingModel, Embeddings
from bos_llm.endpoints.identity import identity_available
from bos_llm.endpoints.profiles import KeyProfile, current_key_profile, set_key_profile
from bos_llm.errors import (
    MODEL_TIMEOUT,
    BudgetExhausted,
    ModelNotConfigured,
    ModelOutputInvalid,
    ModelRateLimited,
    ModelRefused,
    ModelRequestRejected,
    ModelUnavailable,
)
from bos_llm.fallback import NoReply, attempt, stream
from bos_llm.messages import Message, assistant, system, user
from bos_llm.model import Completion, Model, Structured, TextDelta
from bos_llm.models import Models, open_models
from bos_llm.probing import Probe, probe
from bos_llm.prompts import PromptFile, prompt_file
from bos_llm.settings import ModelSettings
from bos_llm.usage import ModelPrice, Usage
from bos_llm.usage_message import add_unreported, consumed, usage_message

__all__ = [
    "MODEL_TIMEOUT",
    "AgentModelConfig",
    "BudgetExhausted",
    "Completion",
    "EmbeddingModel",
    "Embeddings",
    "KeyProfile",
    "Message",
    "Model",
    "ModelNotConfigured",
    "ModelOutputInvalid",
    "ModelPrice",
    "ModelRateLimited",
    "ModelRefused",
    "ModelRequestRejected",
    "ModelSettings",
    "ModelUnavailable",
    "Models",
    "NoReply",
    "Probe",
    "PromptFile",
    "Structured",
    "TextDelta",
    "TokenBudget",
    "Usage",
    "add_unreported",
    "assistant",
    "attempt",
    "consumed",
    "current_budget",
    "current_key_profile",
    "current_model_choice",
    "identity_available",
    "open_models",
    "probe",
    "prompt_file",
    "set_budget",
    "set_key_profile",
    "set_model_choice",
    "stream",
    "system",
    "usage_message",
    "user",
]
