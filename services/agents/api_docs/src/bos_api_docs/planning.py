"""From a plan to one exact call: force rule, API, base URL, path, headers, credentials."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos_agentkit import AgentFailure
from bos_api_docs.calls.headers import ACCEPT, combined, plan_headers
from bos_api_docs.calls.sending import ExactCall, Route, body_text
from bos_api_docs.calls.tokens import Credentials
from bos_api_docs.calls.urls import (
    Base,
    checked_base,
    context_base,
    rendered_path,
    rendered_query,
)
from bos_api_docs.catalogue.model import METHODS, substituted
from bos_api_docs.replies import ApiCallPlan, values
from bos_api_docs.settings import ApiSettings
from bos_errors import AgentErrorType
from bos_http import HttpRefused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bos_agentkit import AgentTask
    from bos_api_docs.catalogue.index import Found
    from bos_api_docs.catalogue.loading import Loaded
    from bos_api_docs.catalogue.model import Operation
    from bos_http import HttpClient

# Reasons of a declined plan that are about the documentation and not about the call.
_FORCING = (
    *("documentation", "not specify", "cannot invent", "not specified", "does not specify"),
    *("not documented", "no documented"),
)
_WITH_BODY = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_ARGUMENTS = frozenset(
    {"api", "method", "path", "path_params", "query_params", "json_body", "headers"}
)


def given_plan(task: AgentTask) -> ApiCallPlan | None:
    """Call that the step's own input describes, so that no model is asked; None if it does not."""
    given = task.arguments
    if task.input.approval_context.user_instructions.strip():
        return None
    if not isinstance(given.get("path"), str) or not str(given["path"]).startswith("/"):
        return None
    fields = {name: value for name, value in given.items() if name in _ARGUMENTS}
    try:
        plan = ApiCallPlan.model_validate({"method": "GET", **fields, "make_request": True})
    except ValueError:
        return None
    return plan.model_copy(update={"reason": task.effective_task})


def is_forced(plan: ApiCallPlan) -> bool:
    """Whether a declined call is attempted anyway: it is complete, and only documentation lacks."""
    said = f"{plan.reason} {plan.failure_reason}".lower()
    is_call = plan.method.strip().upper() in ("GET", "POST") and plan.path.strip().startswith("/")
    return not plan.make_request and is_call and any(each in said for each in _FORCING)


def declined(plan: ApiCallPlan) -> AgentFailure:
    """The failure of a plan without a call."""
    why = " ".join((plan.failure_reason or plan.reason).split())[:500]
    return AgentFailure(
        AgentErrorType.PLANNING_DECLINED,
        f"No API call does this task. {why}".strip(),
        {"method": plan.method[:20], "path": plan.path[:500]},
    )


def chosen_operation(
    plan: ApiCallPlan, loaded: Loaded, found: Sequence[Operation], *, default: str
) -> tuple[str, Operation | None]:
    """API and documented operation of a plan; the operation is None if it is not documented.

    Args:
        plan: The plan.
        loaded: What is documented.
        found: Endpoints that the model was shown, best first.
        default: API of calls that are not documented.

    Raises:
        AgentFailure: PlanningDeclined; no method, or an API that is not known.
    """
    method = plan.method.strip().upper()
    if method not in METHODS:
        raise AgentFailure(
            AgentErrorType.PLANNING_DECLINED,
            f"The planned call has no method that can be sent; use {', '.join(METHODS)}.",
        )
    path = plan.path.partition("?")[0].strip()
    names = [catalogue.name for catalogue in loaded.index.catalogues]
    named = plan.api.strip()
    if named and named not in names:
        named = ""
    # The plan's own API first, then those of the endpoints that it was shown, best first.
    order = [named] if named else list(dict.fromkeys([*(each.api for each in found), *names]))
    for name in order:
        catalogue = loaded.catalogue(name)
        operation = catalogue.find(method, path) if catalogue is not None else None
        if operation is not None:
            return name, operation
    return named or default, None


class Router:
    """Routes of calls: destination and credentials.

    Args:
        apis: Settings by name; the first is the default API.
        default_base_url: Base URL of APIs without one.
        http: The guarded client, whose policy decides about every URL.
    """

    def __init__(
        self, apis: Mapping[str, ApiSettings], default_base_url: str, http: HttpClient
    ) -> None:
        self._apis = apis
        self.default = next(iter(apis), "")
        """Name of the default API; empty if there is none."""
        self._default_base_url = default_base_url
        self._http = http

    def route(
        self, task: AgentTask, name: str, operation: Operation | None, loaded: Loaded
    ) -> Route:
        """Base URL by priority: the request's, the API's, the configured default.

        The operator's credentials belong to the operator's base URL. The request's belong to the
        base URL that the request names, else to the default API.

        Raises:
            AgentFailure: no base URL is known, or the policy does not allow it.
        """
        api = self._apis.get(name) or ApiSettings()
        own = api.base_url or self._default_base_url or self._server(name, loaded)
        wanted = context_base(task.input.context.fields)
        base = self._base(wanted or own, from_context=bool(wanted))
        is_own = not wanted or self._is_origin_of(own, base)
        is_default = name in ("", self.default)
        credentials = Credentials(
            secrets=task.input.secrets if wanted or is_default else {},
            api=api if is_own else None,
        )
        return Route(base, api, credentials, operation)

    def _server(self, name: str, loaded: Loaded) -> str:
        """Server that the API's own document names, where it is that of the document."""
        catalogue, api = loaded.catalogue(name), self._apis.get(name)
        if catalogue is None or api is None:
            return ""
        for server in catalogue.servers:
            try:
                one, other = self._http.check(server), self._http.check(api.openapi)
            except HttpRefused:
                continue
            if one.origin == other.origin:
                return server
        return ""

    def _is_origin_of(self, own: str, base: Base) -> bool:
        try:
            return bool(own) and self._http.check(own).origin == base.target.origin
        except HttpRefused:
            return False

    def _base(self, url: str, *, from_context: bool) -> Base:
        if not url:
            raise AgentFailure(
                AgentErrorType.CONFIGURATION_ERROR,
                "The API has no base URL. Set API_AGENT_BASE_URL, base_url of the API in "
                "BOS_API_DOCS_APIS, or send context.api_base_url.",
            )
        try:
            return checked_base(url, self._http.check, from_context=from_context)
        except HttpRefused as error:
            who = "context.api_base_url" if from_context else "The configured base URL"
            raise AgentFailure(
                AgentErrorType.HTTP_REQUEST_ERROR,
                f"{who} may not be called. {error.message} BOS_HTTP_HOSTS or "
                "BOS_HTTP_INTERNAL_ORIGINS allow hosts.",
                dict(error.metadata),
            ) from error


def exact_call(task: AgentTask, plan: ApiCallPlan, name: str, route: Route) -> ExactCall:
    """The request of a plan, without credentials.

    Raises:
        AgentFailure: PathResolutionError, or a body that is no JSON.
    """
    operation = route.operation
    path, query_params = plan.path.strip(), values(plan.query_params)
    given = values(plan.path_params)
    if operation is not None:
        # A parameter in the wrong place is moved to where it is documented.
        wanted = operation.documents("path")
        moved = {key: query_params.pop(key) for key in list(query_params) if key in wanted}
        given = {**moved, **given}
    rendered, carried = rendered_path(path, given)
    query = rendered_query(carried, query_params)
    headers, refused = plan_headers(values(plan.headers), operation)
    if refused:
        task.trace.message("Headers of the plan were left out", names=refused)
    method = plan.method.strip().upper()
    body = body_text(plan.json_body or "") if method in _WITH_BODY else ""
    if body:
        headers = combined(headers, {"Content-Type": "application/json"})
    url = route.base.prefix + rendered + (f"?{query}" if query else "")
    return ExactCall(name, method, url, combined({"Accept": ACCEPT}, headers), body)


def shown_path(plan: ApiCallPlan) -> str:
    """Path of a plan with its parameters, for messages."""
    return substituted(plan.path.strip(), values(plan.path_params))[:300]


def candidates_text(found: Found) -> list[str]:
    """Endpoints that the model was shown, for the trace."""
    return [f"{each.method} {each.path}" for each in found.operations]
