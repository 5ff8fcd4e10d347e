"""Card of the API agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos_agentkit import agent_card

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bos.agent.v1 import AgentCard
    from bos_agentkit import AgentTool
    from bos_api_docs.catalogue.model import ApiCatalogue

NAME = "api_docs"

KEYWORDS = (
    "api",
    "endpoint",
    "route",
    "http",
    "/api/",
    "get /",
    "post /",
    "put /",
    "delete /",
    "patch /",
    "status code",
    "request body",
)
"""Substrings of questions that count for this agent."""

SECRET_KEYS = (
    "api_headers",
    "api_bearer_token",
    "firebase_id_token",
    "api_token_file",
    "firebase_web_api_key",
    "firebase_email",
    "firebase_password",
)
"""Context keys with credentials of the request; the gateway puts a token file's content in."""

_SELECTION_GROUP = 1
_MAX_SHOWN_APIS = 8
_MAX_SHOWN_TAGS = 12


def api_docs_card(tools: Iterable[AgentTool], catalogues: Sequence[ApiCatalogue]) -> AgentCard:
    """Card of the API agent; ``catalogues`` tell the planner which APIs there are."""
    known = [_described(each) for each in catalogues[:_MAX_SHOWN_APIS]]
    about = f" APIs: {'; '.join(known)}." if known else ""
    return agent_card(
        NAME,
        "Answers questions about documented HTTP APIs and calls them." + about,
        capabilities=(
            "lists and explains the endpoints of APIs",
            "reads live data by GET; lists come as rows",
            "creates and changes things by POST, PUT, PATCH or DELETE after approval "
            "(tool call_api_write)",
        ),
        typical_use_cases=(
            "List me all the API points available to you",
            "Ask the API for the status of this order",
            "Open a ticket through the API (with the tool call_api_write)",
        ),
        keywords=KEYWORDS,
        selection_group=_SELECTION_GROUP,
        tools=tools,
        output_fields={
            "rows": "rows of a list as maps from field to value",
            "row_count": "number of rows",
            "body": "the response, where it is no list",
            "status_code": "HTTP status",
            "url": "what was called",
            "truncated": "whether the API has more",
        },
        secret_context_keys=SECRET_KEYS,
        default_timeout_s=60,
        max_retries=1,
        latency_budget_s=6,
        aliases=("api_docs_agent", "api_agent"),
        version="0.1.0",
    )


def _described(catalogue: ApiCatalogue) -> str:
    # Names alone: a document's prose must not reach the planner as if it were ours.
    tags = dict.fromkeys(_word(tag) for each in catalogue.operations for tag in each.tags)
    shown = ", ".join(list(filter(None, tags))[:_MAX_SHOWN_TAGS])
    return f"{catalogue.name} ({shown})" if shown else catalogue.name


def _word(tag: str) -> str:
    return tag if len(tag) <= 30 and tag.replace("-", "").replace("_", "").isalnum() else ""
