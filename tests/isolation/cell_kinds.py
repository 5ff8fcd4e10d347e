"""What each kind of caller must hear at each kind of RPC: the columns of the table.

A kind says for each of :data:`CALLERS` with which credentials it calls, and what comes of it. What
the credentials are is in ``cell_harness``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

CALLERS = (
    "anonymous",
    "other user",
    "other group",
    "operator",
    "run token",
    "expired",
    "revoked",
    "API key without scope",
)
OTHERS = ("other user", "other group", "operator")
"""Who has a good session of their own."""

NOTHING = "nothing"
SESSION = "session"
STEP = "token of a step"
"""Of ada's own running step, as the gateway gave it to the agent."""
STEP_AS_BEARER = "token of a step as access token"
STEP_FOR_ANOTHER = "token of a step for another agent"
OWN_STEP = "token of a step of their own"
"""For the very service, of a running step of the caller's."""
OWN_CALL = "the gateway's token for them"
"""For the very service, of the gateway's own, for a run of the caller's."""
EXPIRED_SESSION, EXPIRED_KEY = "expired session", "expired key"
EXPIRED_STEP, EXPIRED_CALL = "expired token of a step", "expired token of the gateway's"
APPROVERS_SESSION = "session of an approver"
ENDED_SESSION, REVOKED_KEY, ENDED_STEP = "ended session", "revoked key", "token of an ended step"
KEY = "key"
"""Ada's own, with all scopes but the one."""
FORGED_STEP = "forged token of a step"
"""Says what a token of ada's running step says, and names the same key; signed by another."""
STATIC_KEY = "static key"
"""Of mcp_db, whose holder is in a group that reads no table."""


@dataclass(frozen=True)
class Outcome:
    """What a caller hears; nothing of ada's is in it, unless it may be."""

    code: str
    reason: str = ""
    hides: bool = True
    ids: bool = False
    """Whether it hears the ids of runs and of their owner, and still nothing else."""
    at_headers: bool = False
    """Whether it comes before any message has: who is refused so keeps no place by being silent."""


OK = Outcome("OK")
IDS_ALONE = Outcome("OK", ids=True)
"""Of runs and approvals: that there is one, and whose."""
STAYS = Outcome("OK", hides=False)
"""An access token is good until it expires, but for identity and approvals (the threat model)."""
MISSING = Outcome("UNAUTHENTICATED", "CREDENTIAL_MISSING", at_headers=True)
BAD_TOKEN = Outcome("UNAUTHENTICATED", "TOKEN_INVALID", at_headers=True)
SESSION_OVER = Outcome("UNAUTHENTICATED", "TOKEN_INVALID")
BAD_KEY = Outcome("UNAUTHENTICATED", "API_KEY_INVALID", at_headers=True)
BAD_RUN_TOKEN = Outcome("UNAUTHENTICATED", "RUN_TOKEN_INVALID", at_headers=True)
STEP_OVER = Outcome("UNAUTHENTICATED", "RUN_TOKEN_STEP_ENDED", at_headers=True)
RUN_TOKEN_OVER = Outcome("UNAUTHENTICATED", "RUN_TOKEN_EXPIRED", at_headers=True)
OTHER_STEP = Outcome("PERMISSION_DENIED", "RUN_TOKEN_OTHER_STEP")
NO_ROLE = Outcome("PERMISSION_DENIED", "ROLE_REQUIRED")
NO_SCOPE = Outcome("PERMISSION_DENIED", "SCOPE_REQUIRED", at_headers=True)
NO_PERSON = Outcome("PERMISSION_DENIED", "SIGN_IN_REQUIRED", at_headers=True)
DENIED = Outcome("PERMISSION_DENIED", "PERMISSION_DENIED")
FOR_IDENTITY = Outcome("PERMISSION_DENIED", "IDENTITY_ONLY")
NOT_FOUND = Outcome("NOT_FOUND", "NOT_FOUND")


@dataclass(frozen=True)
class Kind:
    owner: str
    """Whose call must succeed: ``ada``, ``gateway`` (for a run of ada's) or ``step`` (of ada's)."""
    cells: Mapping[str, Mapping[str, Outcome]]
    """By caller, what comes of each of its credentials."""


def _of_people(
    others: Outcome,
    *,
    key: Outcome = NO_SCOPE,
    ended_session: Outcome | None = None,
    step: Outcome = MISSING,
) -> Kind:
    """What people call: gateway, identity and memory."""
    ended = {} if ended_session is None else {ENDED_SESSION: ended_session}
    return Kind(
        "ada",
        {
            "anonymous": {NOTHING: MISSING},
            **{caller: {SESSION: others} for caller in OTHERS},
            "run token": {STEP: step, STEP_AS_BEARER: BAD_TOKEN},
            "expired": {EXPIRED_SESSION: BAD_TOKEN, EXPIRED_KEY: BAD_KEY},
            "revoked": {**ended, REVOKED_KEY: BAD_KEY},
            "API key without scope": {KEY: key},
        },
    )


# Of the gateway. What changes something is not called with ada's ended session: that is good until
# it expires, which what reads shows.
READS_RUN = _of_people(NOT_FOUND, ended_session=STAYS)
CHANGES_RUN = _of_people(NOT_FOUND)
LISTS_OWN = _of_people(OK, ended_session=STAYS)
ADDS_OWN = _of_people(OK)
DECIDES = _of_people(NOT_FOUND, ended_session=SESSION_OVER)
_NO_OPERATOR = _of_people(NO_ROLE, ended_session=NO_ROLE)
OPERATES = Kind(
    "olga",
    {
        **_NO_OPERATOR.cells,
        "other user": {SESSION: NO_ROLE, APPROVERS_SESSION: NO_ROLE},
        "operator": {SESSION: IDS_ALONE},
    },
)
"""Ada administers: her session that has ended shows that administrators are no operators."""

READS_TRAIL = _of_people(NO_ROLE, key=NO_PERSON, ended_session=STAYS)

# Of memory, which knows run tokens of the gateway's own calls.
READS_MEMORY = _of_people(NOT_FOUND, ended_session=STAYS, step=BAD_RUN_TOKEN)
CHANGES_MEMORY = _of_people(NOT_FOUND, step=BAD_RUN_TOKEN)
READS_OWN_MEMORY = _of_people(OK, ended_session=STAYS, step=BAD_RUN_TOKEN)
CHANGES_OWN_MEMORY = _of_people(OK, step=BAD_RUN_TOKEN)


def _of_documents(
    others: Outcome, own_step: Outcome, *, ended_session: Outcome | None = None
) -> Kind:
    """What people call, and some of it steps whose run token names documents."""
    people = _of_people(others, ended_session=ended_session, step=BAD_RUN_TOKEN)
    return Kind(
        "ada",
        {
            **people.cells,
            **{caller: {SESSION: others, OWN_STEP: own_step} for caller in OTHERS},
            "expired": {**people.cells["expired"], EXPIRED_STEP: RUN_TOKEN_OVER},
            "revoked": {**people.cells["revoked"], ENDED_STEP: STEP_OVER},
        },
    )


READS_DOCUMENT = _of_documents(NOT_FOUND, DENIED, ended_session=STAYS)
CHANGES_DOCUMENT = _of_documents(NOT_FOUND, DENIED)
LISTS_DOCUMENTS = _of_documents(OK, DENIED, ended_session=STAYS)
ADDS_DOCUMENT = _of_documents(OK, DENIED)
SEARCHES = _of_documents(OK, OK, ended_session=STAYS)
READS_PASSAGE = _of_documents(NOT_FOUND, NOT_FOUND, ended_session=STAYS)

_NO_READER = _of_documents(NO_ROLE, DENIED, ended_session=NO_ROLE)
COUNTS_DOCUMENTS = Kind(
    "olga",
    {**_NO_READER.cells, "operator": {SESSION: OK, OWN_STEP: DENIED}},
)

# Of workspaces, whose server has an authenticator of its own for steps: what these are handed is no
# credential here.
READS_FILE = _of_people(NOT_FOUND, ended_session=STAYS)
CHANGES_FILE = _of_people(NOT_FOUND)
LISTS_FILES = _of_people(OK, ended_session=STAYS)
ADDS_FILE = _of_people(OK)

# Of identity, where a session that has ended is no use at all.
OF_ACCOUNT = _of_people(NOT_FOUND, ended_session=SESSION_OVER)
OWN_ACCOUNT = _of_people(OK, ended_session=SESSION_OVER)
OTHERS_KEYS = _of_people(NO_ROLE, ended_session=SESSION_OVER)
CONNECTS = _of_people(OK, key=NO_PERSON, ended_session=SESSION_OVER)
DISCONNECTS = _of_people(NOT_FOUND, key=NO_PERSON, ended_session=SESSION_OVER)
MAKES_KEYS = _of_people(NO_ROLE, key=NO_PERSON, ended_session=SESSION_OVER)
NEEDS_PASSWORD = _of_people(
    Outcome("INVALID_ARGUMENT", "INVALID_ARGUMENT"), key=NO_PERSON, ended_session=SESSION_OVER
)
ADMINISTRATION = _of_people(NO_ROLE, key=NO_PERSON, ended_session=SESSION_OVER)
EXPORTS_OWN = _of_people(OK, key=NO_PERSON, ended_session=SESSION_OVER)
IDENTITY_ONLY = Kind(
    "identity",
    {
        "anonymous": {NOTHING: MISSING},
        **{caller: {SESSION: FOR_IDENTITY} for caller in OTHERS},
        "run token": {STEP: MISSING, STEP_AS_BEARER: BAD_TOKEN},
        "expired": {EXPIRED_SESSION: BAD_TOKEN, EXPIRED_KEY: BAD_KEY},
        "revoked": {ENDED_SESSION: FOR_IDENTITY, REVOKED_KEY: BAD_KEY},
        "API key without scope": {KEY: FOR_IDENTITY},
    },
)
ABOUT_SESSION = _of_people(OK, key=OK, ended_session=OK)


def _of_steps(*, own_step: Outcome, ended: Outcome = STEP_OVER) -> Kind:
    """What agents and what they call take: tokens of steps that are under way."""
    return Kind(
        "step",
        {
            "anonymous": {NOTHING: MISSING},
            **{caller: {SESSION: MISSING, OWN_STEP: own_step} for caller in OTHERS},
            "run token": {STEP_FOR_ANOTHER: BAD_RUN_TOKEN, STEP_AS_BEARER: MISSING},
            "expired": {
                EXPIRED_STEP: RUN_TOKEN_OVER,
                EXPIRED_SESSION: MISSING,
                EXPIRED_KEY: MISSING,
            },
            "revoked": {ENDED_STEP: ended, ENDED_SESSION: MISSING, REVOKED_KEY: MISSING},
            "API key without scope": {KEY: MISSING},
        },
    )


SERVES_STEPS = _of_steps(own_step=OK)
READS_FOR_USER = _of_steps(own_step=OK)
QUERIES_FOR_USER = _of_steps(own_step=Outcome("PERMISSION_DENIED", "QUERY_REFUSED"))
WORKS_FOR_STEP = _of_steps(own_step=OTHER_STEP)


GATEWAY_ONLY = Kind(
    "gateway",
    {
        "anonymous": {NOTHING: MISSING},
        **{caller: {SESSION: MISSING, OWN_STEP: BAD_RUN_TOKEN} for caller in OTHERS},
        "run token": {STEP: BAD_RUN_TOKEN, STEP_AS_BEARER: MISSING},
        "expired": {EXPIRED_CALL: RUN_TOKEN_OVER, EXPIRED_SESSION: MISSING, EXPIRED_KEY: MISSING},
        "revoked": {ENDED_SESSION: MISSING, REVOKED_KEY: MISSING},
        "API key without scope": {KEY: MISSING},
    },
)
GATEWAY_FOR_ITS_RUN = Kind(
    "gateway",
    {
        "anonymous": {NOTHING: MISSING},
        **{
            caller: {SESSION: DENIED, OWN_STEP: BAD_RUN_TOKEN, OWN_CALL: DENIED}
            for caller in OTHERS
        },
        "run token": {STEP: BAD_RUN_TOKEN, STEP_AS_BEARER: BAD_TOKEN},
        "expired": {
            EXPIRED_CALL: RUN_TOKEN_OVER,
            EXPIRED_SESSION: BAD_TOKEN,
            EXPIRED_KEY: BAD_KEY,
        },
        "revoked": {ENDED_SESSION: DENIED, REVOKED_KEY: BAD_KEY},
        "API key without scope": {KEY: NO_PERSON},
    },
)
ABOUT_RUN_TOKEN = Kind(
    "step",
    {
        "anonymous": {NOTHING: MISSING},
        **{caller: {SESSION: MISSING, OWN_STEP: OK, OWN_CALL: BAD_RUN_TOKEN} for caller in OTHERS},
        "run token": {STEP_FOR_ANOTHER: OK, STEP_AS_BEARER: MISSING},
        "expired": {
            EXPIRED_STEP: RUN_TOKEN_OVER,
            EXPIRED_SESSION: MISSING,
            EXPIRED_KEY: MISSING,
        },
        "revoked": {ENDED_STEP: OK, ENDED_SESSION: MISSING, REVOKED_KEY: MISSING},
        "API key without scope": {KEY: MISSING},
    },
)


def open_to_all(outcome: Outcome) -> Kind:
    """Needs no credential, and looks at none: everybody hears the same."""
    return Kind(
        "no user",
        {
            "anonymous": {NOTHING: outcome},
            **{caller: {SESSION: outcome} for caller in OTHERS},
            "run token": {STEP: outcome, STEP_AS_BEARER: outcome},
            "expired": {EXPIRED_SESSION: outcome, EXPIRED_KEY: outcome},
            "revoked": {ENDED_SESSION: outcome, REVOKED_KEY: outcome},
            "API key without scope": {KEY: outcome},
        },
    )


OPEN = open_to_all(OK)
