"""The API agent: finds endpoints, plans one call, makes it or proposes it, words the response.

::

    rank -> plan -> answer from documentation | list of endpoints | declined
              '-> exact call -> reads: sent, pages followed -> rows or body -> words
                            '-> may change something: proposed; once approved, sent once
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from bos.agent.v1 import SideEffectClass
from bos.common.v1 import Outcome
from bos_agentkit import (
    Agent,
    AgentFailure,
    ToolContext,
    awaiting_approval,
    needed_reply,
    optional_reply,
    succeeded,
    tool,
)
from bos_api_docs import answers, prompts
from bos_api_docs.calls.headers import idempotency_key
from bos_api_docs.calls.pages import PageLimits, read_pages, single_result
from bos_api_docs.calls.results import CallResult, data_of, table_of
from bos_api_docs.calls.sending import ExactCall, Route, Sender
from bos_api_docs.card import api_docs_card
from bos_api_docs.catalogue.index import Found
from bos_api_docs.catalogue.loading import is_url
from bos_api_docs.planning import (
    Router,
    candidates_text,
    chosen_operation,
    declined,
    exact_call,
    given_plan,
    is_forced,
)
from bos_api_docs.replies import ApiCallPlan, ApiSummary
from bos_errors import AgentErrorType, InvalidArgument, PermissionDenied
from bos_llm import NoReply
from bos_llm.numbers.check import ungrounded_numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bos.agent.v1 import AgentResult, ProposedAction
    from bos_agentkit import AgentTask
    from bos_api_docs.catalogue.loading import Catalogues, Loaded
    from bos_api_docs.catalogue.model import Operation
    from bos_api_docs.settings import ApiDocsSettings
    from bos_http import HttpClient
    from bos_llm import Model, ModelNotConfigured

READ, WRITE = "call_api_read", "call_api_write"
_IDEMPOTENT = SideEffectClass.SIDE_EFFECT_CLASS_IDEMPOTENT


class ApiDocsAgent(Agent):
    """Answers from the documentation of APIs, and calls them.

    Args:
        settings: Limits, and which calls need approval.
        catalogues: What is documented.
        router: Where calls go.
        sender: Sends them.
        http: The guarded client.
        model: Plans calls and words responses; None: documentation, and calls given by plans.
    """

    def __init__(
        self,
        settings: ApiDocsSettings,
        catalogues: Catalogues,
        router: Router,
        sender: Sender,
        http: HttpClient,
        model: Model | None,
    ) -> None:
        self._settings = settings
        self._catalogues = catalogues
        self._router = router
        self._sender = sender
        self._http = http
        self._model = model
        apis = settings.all_apis().items()
        self._fetched = {name for name, api in apis if is_url(api.openapi)}
        self._limits = PageLimits(settings.max_pages, settings.max_rows, settings.max_list_bytes)
        self.tools = (
            tool(
                description="Read from an API: GET, HEAD, or a POST that is documented as one that "
                "only reads. Lists come as rows, all pages of them within limits.",
                requires_approval=settings.requires_approval == "all",
                side_effect=SideEffectClass.SIDE_EFFECT_CLASS_NONE,
            )(self.call_api_read),
            tool(
                description="Make one call that may change something: POST, PUT, PATCH, DELETE. A "
                "person approves the exact call.",
                requires_approval=True,
                side_effect=SideEffectClass.SIDE_EFFECT_CLASS_IRREVERSIBLE,
            )(self.call_api_write),
        )
        self.card = api_docs_card(self.tools, catalogues.current.index.catalogues)

    async def call_api_read(
        self,
        api: str,
        method: Literal["GET", "HEAD", "POST"],
        url: str,
        headers: dict[str, str],
        body: str,
        context: ToolContext,
    ) -> CallResult:
        """Make a call that only reads; returns its rows or body."""
        task, call = context.task, ExactCall(api, method, url, headers, body)
        route = self._checked(task, call)
        if not _reads(route.operation, call):
            raise PermissionDenied(
                f"{call.title} is not documented as a call that only reads.",
                reason="API_CALL_NOT_READ_ONLY",
            )
        limits = self._limits.lowered(task.input)
        return await read_pages(task, self._sender, self._http, route, call, limits)

    async def call_api_write(
        self,
        api: str,
        method: Literal["POST", "PUT", "PATCH", "DELETE"],
        url: str,
        headers: dict[str, str],
        body: str,
        context: ToolContext,
    ) -> CallResult:
        """Make exactly this call, once; returns its response."""
        task, call = context.task, ExactCall(api, method, url, headers, body)
        route = self._checked(task, call)
        key = idempotency_key(context.idempotency_key)
        answer = await self._sender.write(task, route, call, key=key)
        task.taint()
        return single_result(call, answer)

    async def execute(self, task: AgentTask) -> AgentResult:
        """Answer from the documentation, make a call that reads, or propose one that may change."""
        loaded = self._catalogues.current
        plan, found = given_plan(task), Found((), ())
        if plan is None:
            _require_catalogue(loaded)
            if answers.asks_for_all(task.effective_task):
                return self._listing(task, loaded)
            found = self._found(task, loaded)
            if self._is_explained_by_rule(task):
                return _explained(task, found, answers.from_documentation(found), 0.4)
            plan = await self._plan(task, loaded, found)
        if not plan.make_request:
            if plan.list_endpoints:
                return self._listing(task, loaded)
            if plan.answer.strip() and not plan.path.strip():
                return _explained(task, found, plan.answer.strip(), 0.8)
            if not is_forced(plan):
                task.trace.decision("No call planned", reason=plan.failure_reason or plan.reason)
                raise declined(plan)
            task.trace.decision("Attempting the call although the plan declined it")
        return await self._called(task, loaded, plan, found)

    async def perform(self, task: AgentTask, actions: Sequence[ProposedAction]) -> AgentResult:
        """Make exactly the approved call and answer from its response."""
        if len(actions) != 1:
            raise InvalidArgument.field("approval_context.approved_actions", "must be one call")
        result = await task.tools.perform(actions[0])
        return await self._answered(
            task, self._catalogues.current, actions[0].arguments.fields["api"].string_value, result
        )

    def _found(self, task: AgentTask, loaded: Loaded) -> Found:
        """Documentation for the task; what was fetched from a URL taints the step."""
        found = loaded.index.search(
            task.effective_task,
            operations=self._settings.top_endpoints,
            snippets=self._settings.top_snippets,
        )
        apis = {each.api for each in found.operations} | {each.api for each in found.snippets}
        if self._fetched & apis:
            task.taint()
        return found

    def _listing(self, task: AgentTask, loaded: Loaded) -> AgentResult:
        if self._fetched & {each.api for each in loaded.index.operations}:
            task.taint()
        return _listing(task, loaded)

    def _is_explained_by_rule(self, task: AgentTask) -> bool:
        return self._model is None and answers.asks_about_documentation(task.effective_task)

    async def _plan(self, task: AgentTask, loaded: Loaded, found: Found) -> ApiCallPlan:
        several = len(loaded.index.catalogues) > 1
        messages = prompts.plan_messages(task, found, several=several)
        return await needed_reply(task, self._model, messages, ApiCallPlan, no_model=_no_model)

    async def _called(
        self, task: AgentTask, loaded: Loaded, plan: ApiCallPlan, found: Found
    ) -> AgentResult:
        """Make the planned call if it only reads, else propose it."""
        name, operation = chosen_operation(
            plan, loaded, found.operations, default=self._router.default
        )
        route = self._router.route(task, name, operation, loaded)
        call = exact_call(task, plan, name, route)
        reads = _reads(operation, call)
        task.trace.decision(
            "Planned call",
            api=name,
            method=call.method,
            url=call.url,
            reason=plan.reason,
            documented=operation is not None,
            approval="none" if reads and self._settings.requires_approval != "all" else "required",
            candidates=candidates_text(found),
            documentation=prompts.shown_snippets(found.snippets),
        )
        if reads and self._settings.requires_approval != "all":
            result = await task.tools.call(READ, **call.shown)
            return await self._answered(task, loaded, name, result, found)
        keyed = operation is not None and operation.idempotent_by_key
        action = task.tools.propose(
            READ if reads else WRITE,
            call.shown,
            summary=f"{call.method} {call.url}: {plan.reason or task.effective_task}",
            side_effect=_IDEMPOTENT if keyed and not reads else None,
        )
        asked = awaiting_approval(task, [action], answer=plan.reason)
        asked.sources.extend(answers.documentation_sources(found.snippets))
        return asked

    def _checked(self, task: AgentTask, call: ExactCall) -> Route:
        """Route of an exact call, which must lie below the base URL that it would have now.

        Raises:
            PermissionDenied: it leads elsewhere.
        """
        loaded = self._catalogues.current
        catalogue = loaded.catalogue(call.api)
        route = self._router.route(task, call.api, None, loaded)
        target = self._http.check(call.url)
        if not route.base.holds(target):
            raise PermissionDenied(
                "The call leads to another place than the API's base URL, so it was not made.",
                reason="API_CALL_ELSEWHERE",
            )
        path = "/" + target.path[len(route.base.target.path.rstrip("/")) :].lstrip("/")
        operation = catalogue.find(call.method, path) if catalogue is not None else None
        return Route(route.base, route.api, route.credentials, operation)

    async def _answered(
        self,
        task: AgentTask,
        loaded: Loaded,
        api: str,
        result: CallResult,
        found: Found | None = None,
    ) -> AgentResult:
        snippets = found.snippets if found is not None else ()
        data = data_of(result)
        task.partial(**data)
        answer = await self._worded(task, result)
        task.trace.message(
            "Summarised the response",
            status_code=result.status_code,
            documentation=prompts.shown_snippets(snippets),
        )
        return succeeded(
            task,
            answer=answer,
            table=table_of(result),
            data=data,
            confidence=0.7 if result.truncated else 0.9,
            sources=[answers.api_source(loaded.catalogue(api), api, result)],
            outcome=_outcome(result),
        )

    async def _worded(self, task: AgentTask, result: CallResult) -> str:
        """Response summarised by the model, or stated plainly if that fails or invents numbers."""
        plain = answers.plain_answer(result)
        seconds = min(self._settings.summary_timeout_s, task.remaining_s() * 0.8)
        try:
            summary = await optional_reply(
                task,
                self._model,
                lambda: prompts.summary_messages(task, result),
                ApiSummary,
                within_s=seconds,
            )
        except NoReply as failure:
            task.trace.message("Stating the response plainly", error=failure.error_type)
            return plain
        known: list[Any] = [result.body, result.rows, result.url, result.status_code]
        known += [len(result.rows or ()), task.effective_task, task.input.question]
        strange = ungrounded_numbers(summary.answer, [*known, task.arguments, result.more])
        if strange or not summary.answer.strip():
            task.trace.message(
                "The model's words hold numbers that the response does not; not used",
                numbers=strange,
            )
            return plain
        answer = summary.answer.strip()
        return f"{answer} {result.more}" if result.more and result.more not in answer else answer


def _outcome(result: CallResult) -> Outcome:
    if result.rows is not None and not result.rows:
        return Outcome.OUTCOME_EMPTY
    return Outcome.OUTCOME_PARTLY if result.truncated else Outcome.OUTCOME_ANSWERED


def _reads(operation: Operation | None, call: ExactCall) -> bool:
    """Whether a call needs no approval by method and catalogue."""
    if call.method in ("GET", "HEAD"):
        return True
    return operation is not None and operation.reads


def _require_catalogue(loaded: Loaded) -> None:
    """Refuse a step that no catalogue helps with.

    Raises:
        AgentFailure: says why there is none.
    """
    if loaded.index.operations or loaded.index.snippets:
        return
    problems = "; ".join(answers.problem_text(name, why) for name, why in loaded.problems.items())
    raise AgentFailure(
        AgentErrorType.CONFIGURATION_ERROR,
        problems
        or "No API is documented. Set BOS_API_DOCS_OPENAPI or BOS_API_DOCS_CATALOGUE_PATH, or "
        "several APIs in BOS_API_DOCS_APIS.",
        retryable=False,
    )


def _listing(task: AgentTask, loaded: Loaded) -> AgentResult:
    answer, table, endpoints = answers.listing(loaded.index, loaded.problems)
    task.trace.decision("Listing the documented endpoints", endpoints=len(endpoints))
    return succeeded(task, answer=answer, table=table, data={"endpoints": endpoints})


def _explained(task: AgentTask, found: Found, answer: str, confidence: float) -> AgentResult:
    task.trace.decision(
        "Answering from the documentation",
        candidates=candidates_text(found),
        documentation=prompts.shown_snippets(found.snippets),
    )
    data = {
        "endpoints": [
            {"api": each.api, "method": each.method, "path": each.path, "summary": each.summary}
            for each in found.operations
        ]
    }
    sources = answers.documentation_sources(found.snippets)
    return succeeded(task, answer=answer, data=data, confidence=confidence, sources=sources)


def _no_model(_: ModelNotConfigured) -> AgentFailure:
    return AgentFailure(
        AgentErrorType.CONFIGURATION_ERROR,
        "Planning an API call needs a language model, and none is configured. Set OPENAI_API_KEY, "
        "or OPENAI_BASE_URL and BOS_MODEL, or give the step method and path.",
    )
