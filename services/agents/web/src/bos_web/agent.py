"""The web agent: strategy, search, pages, answer with citations that hold.

::

    strategy -> search -> (pages) -> answer -> citations checked -> result
       |                               |  '- asks for whole pages, once -> answer
       '- by rule, or the plan's       '- no model, or nothing it says holds: quotations
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from bos.agent.v1 import SideEffectClass
from bos.common.v1 import Outcome
from bos_agentkit import (
    Agent,
    AgentFailure,
    ToolContext,
    awaiting_approval,
    optional_reply,
    succeeded,
    tool,
)
from bos_errors import AgentErrorType
from bos_llm import NoReply
from bos_web import prompts
from bos_web.addresses import FoundAddresses, addresses_in
from bos_web.answers import checked_answer, quoted
from bos_web.card import web_card
from bos_web.evidence import (
    Evidence,
    confidence,
    of_pages,
    of_results,
    pages_data,
    results_data,
    sources_data,
    with_texts,
)
from bos_web.pages.reader import Page
from bos_web.replies import SearchStrategy, TimeRange, WebAnswer
from bos_web.search.provider import Found, SearchRequest
from bos_web.strategy import Strategy
from bos_web.tasks import (
    SEARCH_TOOLS,
    given_search,
    is_opening,
    pages_to_open,
    rule_strategy,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bos.agent.v1 import AgentResult, ProposedAction
    from bos.common.v1 import Source
    from bos_agentkit import AgentTask
    from bos_llm import Model
    from bos_web.pages.reader import Reader
    from bos_web.replies import SearchType
    from bos_web.search.provider import SearchProvider
    from bos_web.settings import WebSettings

_NONE = SideEffectClass.SIDE_EFFECT_CLASS_NONE
_IDEMPOTENT = SideEffectClass.SIDE_EFFECT_CLASS_IDEMPOTENT
_QUOTED_CONFIDENCE = 0.6
"""Share of the score of sources that are quoted without an answer of the model."""
_FOR_ANSWER = 0.4
"""Share of the time left that pages must leave to the answer."""


@dataclass(frozen=True, slots=True)
class _Material:
    """Findings of a step, for its answer and its data."""

    evidence: list[Evidence]
    data: dict[str, Any] = field(default_factory=dict)
    direct_answer: str = ""
    unread: list[dict[str, str]] = field(default_factory=list)
    may_open: bool = False
    """Whether the model may ask for whole pages of excerpts."""


class WebAgent(Agent):
    """Searches the web, reads pages, answers from them.

    Args:
        settings: Limits.
        provider: What searches; None: it opens given pages alone.
        reader: Reads pages.
        model: Writes queries and answers; None does both by rule.
    """

    def __init__(
        self,
        settings: WebSettings,
        provider: SearchProvider | None,
        reader: Reader,
        model: Model | None,
    ) -> None:
        self._settings = settings
        self._provider = provider
        self._reader = reader
        self._model = model
        self._found = FoundAddresses()
        tools = super().all_tools()
        if provider is None:
            tools = tuple(each for each in tools if each.name not in SEARCH_TOOLS.values())
        self.tools = tools
        self.card = web_card(tools, searches=provider is not None)

    @tool(description="Titles, addresses, excerpts.", side_effect=_NONE, aliases=("WebSearchTool",))
    async def web_search(
        self, query: str, context: ToolContext, time_range: TimeRange = "any"
    ) -> Found:
        """Results, best first."""
        return await self._search(context.task, query, "basic", time_range)

    @tool(description="Recent news.", side_effect=_NONE)
    async def web_search_news(
        self, query: str, context: ToolContext, time_range: TimeRange = "any"
    ) -> Found:
        """Articles, best first."""
        return await self._search(context.task, query, "news", time_range)

    @tool(
        description="Whole pages: for figures, tables, details.",
        side_effect=_NONE,
    )
    async def web_search_deep(
        self, query: str, context: ToolContext, time_range: TimeRange = "any"
    ) -> Found:
        """Results, best first, with the text of pages that the provider read."""
        return await self._search(context.task, query, "deep", time_range)

    @tool(
        description="One page by its address.",
        # The address is sent to its host, and on a tainted step it may hold what an injected
        # instruction wants to leak: then it needs an approval.
        side_effect=_IDEMPOTENT,
        summary="Read the web page {url}",
        aliases=("ReadWebpageTool",),
    )
    async def fetch_url(self, url: str, context: ToolContext) -> dict[str, str]:
        """The page's address after redirects, its title and readable text."""
        page = await self._read(context.task, url)
        return {"url": page.url, "title": page.title, "text": page.text}

    @tool(
        description="Opens search_results=@{outputs.STEP.search_results}.",
        side_effect=_NONE,
    )
    async def explore_search_results(
        self,
        search_results: list[dict[str, Any]],
        context: ToolContext,
        max_pages: Annotated[int | None, Field(ge=1, le=10, description="Pages opened")] = None,
    ) -> dict[str, Any]:
        """Pages that could be read, and those that could not."""
        task = context.task
        urls = [str(each["url"]) for each in search_results if isinstance(each.get("url"), str)]
        known = [url for url in dict.fromkeys(urls) if self._may_open(task, url)]
        outcomes = await asyncio.gather(
            *(self._attempted(task, url) for url in known[: max_pages or self._settings.pages])
        )
        return {
            "pages": {url: each for url, each in outcomes if isinstance(each, Page)},
            "unread": [
                {"url": url, "reason": each} for url, each in outcomes if isinstance(each, str)
            ],
        }

    async def execute(self, task: AgentTask) -> AgentResult:
        """Do one step."""
        name, arguments = task.input.tool_name, task.arguments
        searches = self._provider is not None
        urls = pages_to_open(name, arguments, task.effective_task, searches=searches)
        if not urls and not is_opening(name, arguments):
            return await self._answered(task, await self._searched(task, name, arguments))
        asked = [url for url in urls if not self._may_open(task, url)]
        if asked:
            actions = [task.tools.propose("fetch_url", {"url": url}) for url in asked[:4]]
            task.trace.decision("Addresses that no search brought wait for approval")
            return awaiting_approval(task, actions)
        # A page that the step names has to be readable; of several results some may fail.
        if name != "explore_search_results" and len(urls) == 1 and not task.tainted:
            page = Page(**await task.tools.call("fetch_url", url=urls[0]))
            return await self._answered(task, _opened([page], []))
        found = await task.tools.call(
            "explore_search_results",
            search_results=[{"url": url} for url in urls],
            **_max_pages(arguments),
        )
        return await self._answered(task, _opened(found["pages"].values(), found["unread"]))

    async def perform(self, task: AgentTask, actions: Sequence[ProposedAction]) -> AgentResult:
        """Read the pages that were approved, and answer from them."""
        pages = [Page(**await task.tools.perform(action)) for action in actions]
        return await self._answered(task, _opened(pages, []))

    def _may_open(self, task: AgentTask, url: str) -> bool:
        """Whether an address may be opened without an approval."""
        if not task.input.tainted or url in addresses_in(task.input.question):
            return True
        return self._found.has(task.input.metadata.run_id, url)

    async def _searched(
        self, task: AgentTask, name: str, arguments: Mapping[str, Any]
    ) -> _Material:
        if self._provider is None:
            raise AgentFailure(
                AgentErrorType.CONFIGURATION_ERROR,
                "No web search is configured; an operator has to set BOS_WEB_SEARCH_PROVIDER. "
                "Pages can be read by their address.",
            )
        strategy = await self._strategy(task, name, arguments)
        found: Found = await task.tools.call(
            SEARCH_TOOLS[strategy.search_type],
            query=strategy.query,
            time_range=strategy.time_range,
        )
        evidence = of_results(found.results)
        data: dict[str, Any] = {
            "search_query": strategy.query,
            "search_type": strategy.search_type,
            "time_range": strategy.time_range,
            "search_results": results_data(evidence),
        }
        if found.answer:
            data["tavily_answer"] = found.answer
        task.partial(**data)
        unread: list[dict[str, str]] = []
        if strategy.search_type == "deep":
            wanted = [each.url for each in evidence[: self._settings.pages] if not each.text]
            evidence, unread = await self._with_pages(task, evidence, wanted)
        return _Material(evidence, data, found.answer, unread, may_open=True)

    async def _strategy(self, task: AgentTask, name: str, arguments: Mapping[str, Any]) -> Strategy:
        given = given_search(name, arguments)
        if not given.is_complete:
            seconds = min(self._settings.strategy_timeout_s, task.remaining_s() * 0.25)
            try:
                reply = await optional_reply(
                    task,
                    self._model,
                    lambda: prompts.strategy_messages(task),
                    SearchStrategy,
                    within_s=seconds,
                )
            except NoReply as failure:
                task.trace.message("Query written by rule", error=failure.error_type)
            else:
                if reply.query.strip():
                    chosen = Strategy(reply.query, reply.search_type, reply.time_range)
                    strategy = given.over(chosen)
                    task.trace.decision("Search chosen by the model", type=strategy.search_type)
                    return strategy
        return rule_strategy(task.effective_task, given)

    async def _search(
        self, task: AgentTask, query: str, kind: SearchType, time_range: TimeRange
    ) -> Found:
        assert self._provider is not None  # without it the tools are not offered
        task.usage.api_call()
        request = SearchRequest(query, kind, time_range, self._settings.search_results)
        found = await self._provider.search(request, within_s=task.remaining_s() * 0.6)
        if found.results or found.answer:
            task.taint()
        self._found.add(task.input.metadata.run_id, (each.url for each in found.results))
        return found

    async def _with_pages(
        self, task: AgentTask, evidence: list[Evidence], urls: Sequence[str]
    ) -> tuple[list[Evidence], list[dict[str, str]]]:
        """Evidence with the pages at these addresses, which a search of this step brought."""
        if not urls:
            return evidence, []
        outcomes = await asyncio.gather(*(self._attempted(task, url) for url in urls))
        pages = {url: each for url, each in outcomes if isinstance(each, Page)}
        unread = [{"url": url, "reason": each} for url, each in outcomes if isinstance(each, str)]
        if unread:
            task.trace.message("Pages not read", count=len(unread))
        return with_texts(evidence, pages), unread

    async def _attempted(self, task: AgentTask, url: str) -> tuple[str, Page | str]:
        """The page, or why it could not be read."""
        try:
            return url, await self._read(task, url)
        except AgentFailure as failure:
            return url, failure.message

    async def _read(self, task: AgentTask, url: str) -> Page:
        task.usage.api_call()
        page = await self._reader.read(url, within_s=task.remaining_s() * (1 - _FOR_ANSWER))
        task.taint()
        return page

    async def _answered(self, task: AgentTask, material: _Material) -> AgentResult:
        if not material.evidence:
            return _nothing(task, material)
        try:
            reply = await self._worded(task, material)
            if not reply.found and material.may_open:
                numbers = dict.fromkeys(reply.open_pages)
                shown = material.evidence
                wanted = [
                    shown[number - 1].url
                    for number in numbers
                    if 1 <= number <= len(shown) and not shown[number - 1].text
                ][: self._settings.pages]
                if wanted:
                    task.trace.decision("The model asks for whole pages", count=len(wanted))
                    evidence, unread = await self._with_pages(task, shown, wanted)
                    material = _Material(
                        evidence, material.data, material.direct_answer, material.unread + unread
                    )
                    reply = await self._worded(task, material)
        except NoReply as failure:
            task.trace.message("Quoting the best pages", error=failure.error_type)
            return _result(task, material, *quoted(task, material.evidence), _QUOTED_CONFIDENCE)
        if not reply.found or not reply.answer.strip():
            task.trace.decision("The pages do not answer the task")
            return _nothing(task, material)
        worded = checked_answer(task, reply, material.evidence)
        if worded is None:
            return _result(task, material, *quoted(task, material.evidence), _QUOTED_CONFIDENCE)
        return _result(task, material, *worded, 1.0)

    async def _worded(self, task: AgentTask, material: _Material) -> WebAnswer:
        return await optional_reply(
            task,
            self._model,
            lambda: prompts.answer_messages(
                task, material.evidence, material.direct_answer, most=self._settings.pages
            ),
            WebAnswer,
            within_s=min(self._settings.answer_timeout_s, task.remaining_s() * 0.8),
        )


def _max_pages(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {"max_pages": arguments["max_pages"]} if "max_pages" in arguments else {}


def _opened(pages: Iterable[Page], unread: list[dict[str, str]]) -> _Material:
    return _Material(of_pages(list(pages)), unread=unread)


def _result(
    task: AgentTask, material: _Material, answer: str, sources: Sequence[Source], sureness: float
) -> AgentResult:
    task.trace.result("Answered from the web", cited=len(sources))
    return succeeded(
        task,
        answer=answer,
        data={**_data(material), "found": True, "sources": sources_data(sources)},
        confidence=round(confidence(sources) * sureness, 4),
        sources=sources,
    )


def _nothing(task: AgentTask, material: _Material) -> AgentResult:
    """Answer that the web holds no answer, with what was searched."""
    searched = material.data.get("search_query")
    outcome = Outcome.OUTCOME_NOT_IN_SOURCE
    if searched:
        outcome = Outcome.OUTCOME_EMPTY
        answer = f"Nothing about this was found on the web. Searched for: {searched}"
    elif material.evidence:
        answer = "The pages do not answer this."
    else:
        outcome = Outcome.OUTCOME_PARTLY
        reasons = " ".join(dict.fromkeys(each["reason"] for each in material.unread))
        answer = f"No page could be read. {reasons}".strip()
    return succeeded(
        task,
        answer=answer,
        data={**_data(material), "found": False, "sources": []},
        confidence=0.0,
        outcome=outcome,
    )


def _data(material: _Material) -> dict[str, Any]:
    pages = pages_data(material.evidence)
    return {
        **material.data,
        "pages": pages,
        "fetched_pages": len(pages),
        **({"unread": material.unread} if material.unread else {}),
    }
