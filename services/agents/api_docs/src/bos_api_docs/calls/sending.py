"""Sending of one exact call: credentials, refresh of tokens, repair, errors, trace."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from bos_agentkit import AgentFailure
from bos_api_docs.calls.headers import IDEMPOTENCY_KEY, combined, context_headers
from bos_api_docs.calls.results import error_text
from bos_api_docs.calls.tokens import Credentials, token_url_of
from bos_api_docs.calls.urls import query_of, text_of, with_query
from bos_errors import AgentErrorType
from bos_http import Failure, HttpFailed, HttpRefused, HttpTimedOut

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bos_agentkit import AgentTask
    from bos_api_docs.calls.tokens import Tokens
    from bos_api_docs.calls.urls import Base
    from bos_api_docs.catalogue.model import Operation
    from bos_api_docs.settings import ApiSettings
    from bos_http import HttpClient, HttpResponse

UNSENT = frozenset({Failure.RESOLVE, Failure.CONNECT, Failure.TLS})
_REPEATED_STATUSES = frozenset({429, 502, 503, 504})
_MAX_ATTEMPTS_BY_KEY = 3
_RESERVE_S = 1.0
_MAX_BODY_SNIPPET = 1_000
# Missing query parameters that a 400 is repaired with, and where the request's context has them.
_REPAIRS = {
    "startDateTime": ("startDateTime", "current_date_start_hour"),
    "endDateTime": ("endDateTime", "current_date_end_hour"),
}


@dataclass(frozen=True, slots=True)
class ExactCall:
    """One HTTP request without credentials, as it is shown, approved and sent."""

    api: str
    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""

    @property
    def shown(self) -> dict[str, Any]:
        """Arguments of the tool that makes the call."""
        return {
            "api": self.api,
            "method": self.method,
            "url": self.url,
            "headers": dict(self.headers),
            "body": self.body,
        }

    @property
    def title(self) -> str:
        """Method and URL without query, for messages."""
        return f"{self.method} {self.url.partition('?')[0]}"


@dataclass(frozen=True, slots=True)
class Route:
    """Destination of a call, and the credentials for it."""

    base: Base
    api: ApiSettings
    credentials: Credentials
    operation: Operation | None


class Sender:
    """Sends exact calls.

    Args:
        http: The guarded client.
        tokens: Bearer tokens.
        timeout_s: Time of one request.
    """

    def __init__(self, http: HttpClient, tokens: Tokens, *, timeout_s: float) -> None:
        self._http = http
        self._tokens = tokens
        self._timeout_s = timeout_s

    async def read(self, task: AgentTask, route: Route, call: ExactCall) -> HttpResponse:
        """Send a call that only reads: 401 and 400 are each answered by one repetition.

        Raises:
            AgentFailure: HttpError for another status than 2xx, HttpRequestError without one.
        """
        refreshed: set[str] = set()
        answer = await self._authorised(task, route, call, refreshed)
        repaired = _repaired(task, route.operation, call, answer)
        if repaired is not None:
            task.trace.message("Filled in missing dates and repeated the request")
            answer = await self._authorised(task, route, repaired, refreshed)
        if not answer.ok:
            raise _http_error(task, call, answer, answer.status in _REPEATED_STATUSES)
        return answer

    async def write(
        self, task: AgentTask, route: Route, call: ExactCall, *, key: str
    ) -> HttpResponse:
        """Send an approved call once, with ``key`` as its idempotency key.

        Only where the catalogue says that the API recognises the key is it sent again after a
        connection that broke.

        Raises:
            AgentFailure: as :meth:`read`; OutcomeUnknown where the call may have taken effect.
        """
        keyed = route.operation is not None and route.operation.idempotent_by_key
        sent = replace(call, headers={**call.headers, IDEMPOTENCY_KEY: key})
        refreshed: set[str] = set()
        for attempt in range(1, _MAX_ATTEMPTS_BY_KEY + 1):
            try:
                answer = await self._authorised(task, route, sent, refreshed)
                break
            except _Unknown as unknown:
                last = attempt == _MAX_ATTEMPTS_BY_KEY or task.remaining_s() < _RESERVE_S
                if not keyed or last:
                    raise _outcome_unknown(call, retryable=keyed) from unknown
                task.trace.message(
                    "The connection broke; sending the same request again with the same key",
                    attempt=attempt + 1,
                )
        if answer.ok or answer.status == HTTPStatus.SEE_OTHER:
            return answer
        if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            # A server that failed may have done it before it failed.
            _taint_with(task, answer)
            raise _outcome_unknown(call, status=answer.status, retryable=keyed)
        raise _http_error(task, call, answer, retryable=False)

    async def _authorised(
        self, task: AgentTask, route: Route, call: ExactCall, refreshed: set[str]
    ) -> HttpResponse:
        """Send with a token; after the first 401 once more with another one, if there is one.

        Args:
            task: The step.
            route: Where the call goes.
            call: The call.
            refreshed: Tokens that were not accepted so far; one at most.
        """
        resolve = self._tokens.resolve
        url = token_url_of(route.api, route.api.token_url)
        token = await resolve(route.credentials, url, rejected=refreshed)
        answer = await self._once(task, route, call, token.text if token else "")
        if answer.status != HTTPStatus.UNAUTHORIZED or token is None or refreshed:
            return answer
        refreshed.add(token.text)
        renewed = await resolve(route.credentials, url, rejected=refreshed)
        if renewed is None:
            return answer
        task.trace.message("Refreshed the token and repeated the request", origin=renewed.origin)
        return await self._once(task, route, call, renewed.text)

    async def _once(
        self, task: AgentTask, route: Route, call: ExactCall, token: str
    ) -> HttpResponse:
        operator = route.credentials.api
        own = {} if operator is None else operator.headers
        headers = combined(
            {"Accept": "application/json"},
            {name: value.get_secret_value() for name, value in own.items()},
            context_headers(route.credentials.secrets.get("api_headers", "")),
            call.headers,
            {"Authorization": f"Bearer {token}"} if token else {},
        )
        task.usage.api_call()
        reads = call.headers.get(IDEMPOTENCY_KEY) is None
        try:
            answer = await self._http.request(
                call.method,
                call.url,
                headers=headers,
                body=call.body.encode() if call.body else None,
                timeout_s=min(self._timeout_s, max(0.0, task.remaining_s() - _RESERVE_S / 2)),
                follow_redirects=reads,
            )
        except (HttpRefused, HttpFailed, HttpTimedOut) as error:
            task.trace.tool(
                "Executed HTTP request", url=call.url, method=call.method, failed=error.message
            )
            if not reads and _may_have_acted(error):
                raise _Unknown(error.message) from error
            # What reads changes nothing, and a write that comes here never left.
            raise _request_error(call, error) from error
        task.trace.tool(
            "Executed HTTP request",
            url=call.url,
            method=call.method,
            status_code=answer.status,
            elapsed_ms=round(answer.elapsed_s * 1000, 1),
        )
        return answer


class _Unknown(Exception):
    """A request was sent and no answer received."""


def _may_have_acted(error: HttpRefused | HttpFailed | HttpTimedOut) -> bool:
    """Whether the request may have reached the API."""
    if isinstance(error, HttpRefused):
        # Redirects are not followed, so of the rules only those of responses come after sending.
        return error.rule.value.startswith("response_")
    return not (isinstance(error, HttpFailed) and error.failure in UNSENT)


def _repaired(
    task: AgentTask, operation: Operation | None, call: ExactCall, answer: HttpResponse
) -> ExactCall | None:
    """The call with the dates that a 400 complains of, from the context; None if none helps."""
    if answer.status != HTTPStatus.BAD_REQUEST:
        return None
    given, said = query_of(call.url), answer.text()[:10_000]
    documented = operation.documents("query") if operation is not None else frozenset()
    context = task.input.context.fields
    changes: dict[str, str] = {}
    for name, keys in _REPAIRS.items():
        if given.get(name) or (name not in documented and name not in said):
            continue
        if value := next((text for key in keys if (text := text_of(context, key))), ""):
            changes[name] = value
    return replace(call, url=with_query(call.url, changes)) if changes else None


def _taint_with(task: AgentTask, answer: HttpResponse) -> str:
    """Error text of the API; untrusted."""
    task.taint()
    return error_text(answer.text())


def _http_error(
    task: AgentTask, call: ExactCall, answer: HttpResponse, retryable: bool
) -> AgentFailure:
    said = _taint_with(task, answer)
    name = _reason_phrase(answer.status)
    return AgentFailure(
        AgentErrorType.HTTP_ERROR,
        f"The API answered {call.title} with {answer.status}{name}"
        + (f": {said}" if said else "."),
        {
            "status_code": answer.status,
            "url": call.url,
            "method": call.method,
            "body": answer.text()[:_MAX_BODY_SNIPPET].encode("utf-8", "replace").decode(),
        },
        retryable=retryable,
    )


def _reason_phrase(status: int) -> str:
    try:
        return f" ({HTTPStatus(status).phrase})"
    except ValueError:
        return ""


def _request_error(call: ExactCall, error: HttpRefused | HttpFailed | HttpTimedOut) -> AgentFailure:
    refused = isinstance(error, HttpRefused)
    allow = " BOS_HTTP_HOSTS or BOS_HTTP_INTERNAL_ORIGINS allow hosts." if refused else ""
    return AgentFailure(
        AgentErrorType.HTTP_REQUEST_ERROR,
        f"{call.method} could not be sent to the API. {error.message}{allow}",
        {"method": call.method, "url": call.url, **error.metadata},
        retryable=not refused,
    )


def _outcome_unknown(call: ExactCall, *, retryable: bool, status: int = 0) -> AgentFailure:
    why = f"the API answered with {status}" if status else "no answer came back"
    return AgentFailure(
        AgentErrorType.OUTCOME_UNKNOWN,
        f"It is not known whether {call.title} took effect: it was sent, and {why}.",
        {"method": call.method, "url": call.url},
        retryable=retryable,
        outcome_unknown=True,
    )


def body_text(given: str) -> str:
    """Body of a plan as it is shown and sent: JSON over several lines.

    Raises:
        AgentFailure: it is no JSON.
    """
    if not given.strip():
        return ""
    try:
        value = json.loads(given)
        return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        raise AgentFailure(
            AgentErrorType.PLANNING_DECLINED, "The body of the planned call is no JSON."
        ) from None
