"""Types of failed steps and runs: every value that Bos gives ``AgentError.type``.

CapWords, and the class name of an exception where one stands behind it; the three names of a
missing approval are the ones that callers were promised. Other agents may report types of their
own, in CapWords; an exception that Bos does not know is reported by its class name.

docs/reference/errors.md is written from here.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class AgentErrorType(StrEnum):
    """Value of ``AgentError.type``; ``source`` says who gives it, ``meaning`` what happened."""

    source: str
    meaning: str

    def __new__(cls, value: str, source: str, meaning: str) -> Self:
        """A member that is its value, with what is known of it."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.source = source
        member.meaning = meaning
        return member

    # Tasks
    PLANNING_DECLINED = (
        "PlanningDeclined",
        "agents",
        "The agent found no suitable way to do the task.",
    )
    QUERY_ERROR = (
        "QueryError",
        "sql, mcp_db",
        "The query failed, or the guard refused it (`details.violations`).",
    )
    HTTP_ERROR = ("HttpError", "agents", "The API answered with an error.")
    HTTP_REQUEST_ERROR = ("HttpRequestError", "agents", "The API could not be reached.")
    PATH_RESOLUTION_ERROR = (
        "PathResolutionError",
        "agents",
        "A placeholder of the API's path has no value.",
    )
    CALCULATION_ERROR = ("CalculationError", "computation", "The expression has no result.")
    PROGRAM_FAILED = (
        "ProgramFailed",
        "computation, code",
        "The program raised an exception or ended with another code than 0.",
    )
    PROGRAM_LIMIT_EXCEEDED = (
        "ProgramLimitExceeded",
        "computation, code",
        "The program was stopped at its limit of time, memory or output.",
    )
    SANDBOX_VIOLATION = (
        "SandboxViolation",
        "computation, code",
        "The program tried something that is not allowed, and was stopped.",
    )
    TOOL_ERROR = ("ToolError", "MCP servers", "The tool of the server reported an error.")
    TOOL_UNAVAILABLE = (
        "ToolUnavailable",
        "MCP servers, A2A agents",
        "The server or remote agent could not be called.",
    )
    TOOL_CHANGED = (
        "ToolChanged",
        "MCP servers, A2A agents",
        "The server describes its tool, or the remote agent itself, otherwise than when the call "
        "was approved; it was not made.",
    )
    REMOTE_AGENT_FAILED = (
        "RemoteAgentFailed",
        "A2A agents",
        "The remote agent failed at the task, or canceled it.",
    )
    REMOTE_AGENT_REJECTED = (
        "RemoteAgentRejected",
        "A2A agents",
        "The remote agent does not take the task.",
    )
    REMOTE_AGENT_UNAUTHORIZED = (
        "RemoteAgentUnauthorized",
        "A2A agents",
        "The remote agent wants credentials for the task that Bos cannot give.",
    )
    CONFIGURATION_ERROR = (
        "ConfigurationError",
        "all",
        "Something is not set up; the message names the setting.",
    )

    # Models
    MODEL_NOT_CONFIGURED = ("ModelNotConfigured", "all", "No model is set up for this.")
    MODEL_UNAVAILABLE = (
        "ModelUnavailable",
        "all",
        "The model's endpoint cannot be reached, fails or is too slow; calls have been repeated.",
    )
    MODEL_RATE_LIMITED = (
        "ModelRateLimited",
        "all",
        "The model's endpoint admits no more calls; they have been repeated.",
    )
    MODEL_REQUEST_REJECTED = (
        "ModelRequestRejected",
        "all",
        "The model's endpoint does not accept the request.",
    )
    MODEL_REFUSED = ("ModelRefused", "all", "The model refused to answer.")
    MODEL_OUTPUT_INVALID = (
        "ModelOutputInvalid",
        "all",
        "The model's reply has not the form that was asked for, also after a second try.",
    )
    BUDGET_EXHAUSTED = (
        "BudgetExhausted",
        "all",
        "The run has used the tokens, calls or cost that it may.",
    )

    # Outgoing calls and files
    HTTP_REFUSED = (
        "HttpRefused",
        "agents",
        "The policy for outgoing calls does not allow the URL.",
    )
    HTTP_FAILED = (
        "HttpFailed",
        "agents",
        "The host cannot be reached or does not answer properly.",
    )
    HTTP_TIMED_OUT = ("HttpTimedOut", "agents", "The host did not answer in time.")
    ARTEFACT_MISSING = ("ArtefactMissing", "all", "A stored file is not there any more.")
    ARTEFACT_DAMAGED = ("ArtefactDamaged", "all", "A stored file is not what was stored.")
    ARTEFACT_TOO_LARGE = ("ArtefactTooLarge", "all", "A file is larger than may be stored.")

    # The web
    SEARCH_UNAUTHORIZED = ("SearchUnauthorized", "web", "The search API refused its key.")
    SEARCH_RATE_LIMITED = (
        "SearchRateLimited",
        "web",
        "The search API admits no more searches at the moment.",
    )
    SEARCH_QUOTA_EXCEEDED = (
        "SearchQuotaExceeded",
        "web",
        "The quota of the search API is used up.",
    )
    SEARCH_REFUSED = (
        "SearchRefused",
        "web",
        "The policy for outgoing calls does not allow the search API or its reply.",
    )
    SEARCH_REPLY_INVALID = (
        "SearchReplyInvalid",
        "web",
        "The search API's reply is no result of a search.",
    )
    SEARCH_UNAVAILABLE = ("SearchUnavailable", "web", "The search API cannot be reached or fails.")
    SEARCH_TIMED_OUT = ("SearchTimedOut", "web", "The search API did not answer in time.")
    PAGE_REFUSED = (
        "PageRefused",
        "web",
        "The policy for outgoing calls does not allow the page, or what came of it.",
    )
    ROBOTS_DISALLOW = (
        "RobotsDisallow",
        "web",
        "The site's robots.txt does not allow the page to be read.",
    )
    PAGE_TYPE_UNSUPPORTED = ("PageTypeUnsupported", "web", "The page is neither HTML nor text.")
    PAGE_MISSING = ("PageMissing", "web", "There is no such page.")
    PAGE_UNREADABLE = ("PageUnreadable", "web", "No text can be found in the page.")
    PAGE_UNAVAILABLE = (
        "PageUnavailable",
        "web",
        "The site cannot be reached, or answered with an error.",
    )
    PAGE_TIMED_OUT = ("PageTimedOut", "web", "The page did not come in time.")

    # The plan and its run
    INVALID_PLAN = ("InvalidPlan", "gateway", "The plan cannot be run; the message says why.")
    NO_NEW_PLAN = ("NoNewPlan", "gateway", "Steps failed, and there is no other plan.")
    MAX_STEPS_REACHED = (
        "MaxStepsReached",
        "gateway",
        "The plan has more steps than a run may have.",
    )
    MAX_TURNS_REACHED = ("MaxTurnsReached", "gateway", "The run has had its number of turns.")
    CLARIFICATION_LIMIT = (
        "ClarificationLimit",
        "gateway, sql",
        "The question is still unclear after all rounds of questions.",
    )
    REFERENCE_UNRESOLVED = (
        "ReferenceUnresolved",
        "gateway",
        "The step refers to something that an earlier one did not deliver.",
    )
    NOT_RUN = ("NotRun", "gateway", "The step was not run, as one that it needs failed.")
    DONE_BEFORE = (
        "DoneBefore",
        "gateway",
        "An earlier attempt of the run has done just this, or may have.",
    )
    AGENT_UNKNOWN = ("AgentUnknown", "gateway", "No agent of this name is registered.")
    AGENT_PROTOCOL_ERROR = (
        "AgentProtocolError",
        "gateway",
        "The agent's reply does not follow the contract.",
    )
    RESULT_TOO_LARGE = (
        "ResultTooLarge",
        "gateway",
        "The result is larger than a step may deliver.",
    )
    CREDENTIAL_LOST = (
        "CredentialLost",
        "gateway",
        "A credential that was given with the question did not survive a restart; ask again.",
    )
    OUTCOME_UNKNOWN = (
        "OutcomeUnknown",
        "gateway",
        "An action was begun, and whether it happened is not known; it is not repeated.",
    )
    COMPOSING_FAILED = ("ComposingFailed", "gateway", "The answer could not be written.")

    # Approvals: these three are promised to callers in this form.
    DENIED_BY_USER = ("denied_by_user", "gateway", "The approval was denied.")
    HITL_TIMEOUT = ("hitl_timeout", "gateway", "The approval was not decided in time.")
    HITL_SKIPPED_NON_STREAMING = (
        "hitl_skipped_non_streaming",
        "gateway",
        "No user can approve on this kind of request.",
    )

    # Errors of the exception tree, by class name
    INVALID_ARGUMENT = ("InvalidArgument", "all", "A request or argument is wrong.")
    NOT_FOUND = (
        "NotFound",
        "all",
        "What was named does not exist, or the user may not know of it.",
    )
    ALREADY_EXISTS = ("AlreadyExists", "all", "The name or request id is taken.")
    PERMISSION_DENIED = (
        "PermissionDenied",
        "all",
        "The user may not use this agent, tool or data.",
    )
    UNAUTHENTICATED = ("Unauthenticated", "all", "A service did not accept the credential.")
    FAILED_PRECONDITION = ("FailedPrecondition", "all", "The state does not allow it.")
    RESOURCE_EXHAUSTED = ("ResourceExhausted", "all", "A limit is reached.")
    UNAVAILABLE = ("Unavailable", "all", "A service or store cannot be reached at the moment.")
    DEADLINE_EXCEEDED = ("DeadlineExceeded", "all", "The time was over.")
    CANCELLED = ("Cancelled", "all", "The work was cancelled.")
    ABORTED = ("Aborted", "all", "Something else changed the same thing first.")
    UNIMPLEMENTED = ("Unimplemented", "all", "A service does not offer this.")
    INTERNAL = ("Internal", "all", "A defect of Bos; its log has the cause.")
