"""Settings of the document agent."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from bos_agentkit import AgentServiceSettings


class RagSettings(AgentServiceSettings):
    """``BOS_RAG_…``. Durations are in seconds."""

    model_config = SettingsConfigDict(env_prefix="BOS_RAG_")

    documents_target: str = Field(
        min_length=1, description="Address of the documents service, such as dns:///documents:8080"
    )
    search_timeout_s: float = Field(default=10.0, gt=0, description="Timeout of one search")
    candidates: int = Field(
        default=20, ge=1, le=100, description="Passages returned by a search before reranking"
    )
    passages: int = Field(default=8, ge=1, le=20, description="Passages kept for the answer")
    min_relevance: float = Field(
        default=0.38,
        ge=-1,
        le=1.2,
        description="Cosine similarity of the best passage, with a fifth of the share of the "
        "question's words that were found, below which nothing relevant was found, unless a "
        "passage holds an exact term of the question; chosen for the shipped embedding model",
    )
    rerank_timeout_s: float = Field(
        default=20.0,
        gt=0,
        description="Timeout of reranking; after it passages keep the order of the search",
    )
    answer_timeout_s: float = Field(
        default=60.0,
        gt=0,
        description="Timeout of the model's answer; after it the best passages are quoted",
    )
