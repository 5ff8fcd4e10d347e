"""Names of span attributes: OpenTelemetry's for GenAI, HTTP, RPC and databases, and Bos's own.

The names of the GenAI conventions are not stable yet, so they stand here and nowhere else.
"""

from __future__ import annotations

import hashlib
from typing import Final

# https://opentelemetry.io/docs/specs/semconv/gen-ai/
GEN_AI_OPERATION_NAME: Final = "gen_ai.operation.name"
GEN_AI_PROVIDER_NAME: Final = "gen_ai.provider.name"
GEN_AI_AGENT_ID: Final = "gen_ai.agent.id"
GEN_AI_AGENT_NAME: Final = "gen_ai.agent.name"
GEN_AI_CONVERSATION_ID: Final = "gen_ai.conversation.id"
GEN_AI_WORKFLOW_NAME: Final = "gen_ai.workflow.name"
GEN_AI_TOOL_NAME: Final = "gen_ai.tool.name"
GEN_AI_OUTPUT_TYPE: Final = "gen_ai.output.type"
GEN_AI_REQUEST_MODEL: Final = "gen_ai.request.model"
GEN_AI_REQUEST_TEMPERATURE: Final = "gen_ai.request.temperature"
GEN_AI_RESPONSE_MODEL: Final = "gen_ai.response.model"
GEN_AI_RESPONSE_FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
GEN_AI_USAGE_INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
GEN_AI_USAGE_OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"

INVOKE_WORKFLOW: Final = "invoke_workflow"
INVOKE_AGENT: Final = "invoke_agent"
EXECUTE_TOOL: Final = "execute_tool"
CHAT: Final = "chat"

ERROR_TYPE: Final = "error.type"
RPC_SYSTEM: Final = "rpc.system"
RPC_SERVICE: Final = "rpc.service"
RPC_METHOD: Final = "rpc.method"
RPC_GRPC_STATUS_CODE: Final = "rpc.grpc.status_code"
HTTP_REQUEST_METHOD: Final = "http.request.method"
HTTP_RESEND_COUNT: Final = "http.request.resend_count"
HTTP_RESPONSE_STATUS_CODE: Final = "http.response.status_code"
HTTP_ROUTE: Final = "http.route"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
URL_FULL: Final = "url.full"
DB_SYSTEM_NAME: Final = "db.system.name"
DB_NAMESPACE: Final = "db.namespace"
DB_OPERATION_NAME: Final = "db.operation.name"
DB_RETURNED_ROWS: Final = "db.response.returned_rows"

RUN_ID: Final = "bos.run.id"
RUN_STATUS: Final = "bos.run.status"
RUN_OUTCOME: Final = "bos.run.outcome"
REVISION: Final = "bos.revision"
STEP_ID: Final = "bos.step.id"
STEP_KEY: Final = "bos.step.key"
"""``run/revision/step``, as run tokens have it."""
STEP_STATUS: Final = "bos.step.status"
STEP_OUTCOME: Final = "bos.step.outcome"
ATTEMPT: Final = "bos.attempt"
APPROVAL_ID: Final = "bos.approval.id"
APPROVAL_STATUS: Final = "bos.approval.status"
REPLICA_ID: Final = "bos.replica.id"
OWNERSHIP_REASON: Final = "bos.ownership.reason"
OWNERSHIP_END: Final = "bos.ownership.end"
USER_DIGEST: Final = "bos.user.digest"
HTTP_RULE: Final = "bos.http.rule"
LINK: Final = "bos.link"
"""What a link is for: the request that began or decided something, or what came before."""


def user_digest(user_id: str) -> str:
    """Digest of a user's id, the same on every span of that user; 16 hexadecimal digits."""
    return hashlib.sha256(user_id.encode()).hexdigest()[:16]
