"""The document agent: search, rerank, answer with citations that hold.

::

    entities -> search (20) -> rerank (8) -> answer -> citations checked -> result
                  |               |             '- no model, or nothing it says holds: quotations
                  |               '- no model: by rule
                  '- nothing relevant: says so, and what was searched
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bos.agent.v1 import SideEffectClass
from bos.common.v1 import Outcome
from bos.documents.v1 import SearchDocumentsResponse, SearchFilter
from bos_agentkit import Agent, ToolContext, optional_reply, succeeded, tool
from bos_agentkit.citations import checked_markers, found_quotes, quoted_answer
from bos_llm import NoReply
from bos_llm.numbers.check import ungrounded_numbers
from bos_llm.prompts import current_day
from bos_rag import prompts
from bos_rag.card import rag_card
from bos_rag.entities import codes, find_entities
from bos_rag.passages import (
    as_data,
    as_source,
    by_ranking,
    by_rule,
    confidence,
    hold_exact_term,
    merged,
    missing_codes,
    relevant,
    sources_data,
)
from bos_rag.replies import DocumentAnswer, Ranking

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bos.agent.v1 import AgentResult
    from bos.common.v1 import Source
    from bos.documents.v1 import Passage
    from bos_agentkit import AgentTask
    from bos_llm import Model
    from bos_rag.documents import Documents
    from bos_rag.settings import RagSettings

_NONE = SideEffectClass.SIDE_EFFECT_CLASS_NONE
_FEW = 3
"""A filter that leaves fewer passages than this may have kept out the right one."""


_MAX_BROUGHT_CHARS = 400
"""Names of inputs in a query: more would drown what is asked."""


_MAX_NAME_CHARS = 120
_MAX_INPUT_ROWS = 20

_NEAREST = 3
"""Documents that are named where nothing was found."""


@dataclass(frozen=True, slots=True)
class _Searched:
    """What was searched, for answers without a result."""

    documents: int
    nearest: tuple[str, ...]
    """Names of the documents with the nearest descriptions."""


class RagAgent(Agent):
    """Answers from the user's documents.

    Args:
        settings: Limits.
        documents: Where it searches.
        model: Reranks and words the answer; None does both by rule.
    """

    def __init__(self, settings: RagSettings, documents: Documents, model: Model | None) -> None:
        self._settings = settings
        self._documents = documents
        self._model = model
        self.card = rag_card(self.all_tools())

    @tool(
        description="Search the user's documents for passages about something. Kinds are such as "
        "contract, policy, minutes; dates are YYYY-MM-DD and those that documents bear.",
        side_effect=_NONE,
    )
    async def search_documents(
        self,
        query: str,
        context: ToolContext,
        document_types: list[str] | None = None,
        topics: list[str] | None = None,
        section: str = "",
        date_from: str = "",
        date_to: str = "",
    ) -> SearchDocumentsResponse:
        """Passages, best first."""
        task = context.task
        task.usage.api_call()
        filter = SearchFilter(
            document_types=document_types or [],
            topics=topics or [],
            section=section,
            date_from=date_from,
            date_to=date_to,
        )
        found = await self._documents.search(
            query, filter, limit=self._settings.candidates, remaining_s=task.remaining_s()
        )
        if found.passages or found.documents:
            task.taint()
        return found

    async def execute(self, task: AgentTask) -> AgentResult:
        """Do one step."""
        query = _query(task)
        found, coverage, searched = await self._search(task, query)
        near = self._settings.min_relevance
        if not relevant(found, query, coverage, near, judged=True):
            task.trace.decision("Nothing relevant in the documents", documents=searched.documents)
            return _nothing(task, query, searched)
        kept = (await self._reranked(task, query, found))[: self._settings.passages]
        task.partial(chunks=as_data(kept), query=query)
        return await self._answered(task, query, kept, searched)

    async def _search(self, task: AgentTask, query: str) -> tuple[list[Passage], float, _Searched]:
        """Passages under the filters of the plan or the question; more without them if few.

        Returns:
            They, how much of the question was covered, and what was searched.
        """
        filters = _filters(task, query)
        reply = await task.tools.call("search_documents", query=query, **filters)
        found, coverage, documents = list(reply.passages), reply.coverage, reply.documents
        if filters and len(found) < _FEW:
            task.trace.message("Few passages under the filters; searching without", **filters)
            wider = await task.tools.call("search_documents", query=query)
            found = merged(found, list(wider.passages), self._settings.candidates)
            coverage = max(coverage, wider.coverage)
            documents = documents or wider.documents
        nearest = tuple(each.document_name for each in documents[:_NEAREST])
        return found, coverage, _Searched(reply.documents_searched, nearest)

    async def _reranked(
        self, task: AgentTask, query: str, found: Sequence[Passage]
    ) -> list[Passage]:
        """Passages that help, best first; by rule where the model gives no order."""
        if len(found) > 1:
            seconds = min(self._settings.rerank_timeout_s, task.remaining_s() * 0.3)
            try:
                ranking = await optional_reply(
                    task,
                    self._model,
                    lambda: prompts.rank_messages(task, found),
                    Ranking,
                    within_s=seconds,
                )
            except NoReply as failure:
                task.trace.message("Passages ordered by rule", error=failure.error_type)
            else:
                if ranked := by_ranking(found, ranking.ranked_indices):
                    task.trace.decision("Passages ordered by the model", kept=len(ranked))
                    return ranked
        return by_rule(found, query)

    async def _answered(
        self, task: AgentTask, query: str, kept: Sequence[Passage], searched: _Searched
    ) -> AgentResult:
        seconds = min(self._settings.answer_timeout_s, task.remaining_s() * 0.8)
        try:
            reply = await optional_reply(
                task,
                self._model,
                lambda: prompts.answer_messages(task, kept),
                DocumentAnswer,
                within_s=seconds,
            )
        except NoReply as failure:
            if codes(query) and not hold_exact_term(kept, query):
                return _nothing(task, query, searched, kept)
            task.trace.message("Quoting the best passages", error=failure.error_type)
            return _quoted(task, query, kept, "The nearest passages say:")
        if not reply.found or not reply.answer.strip():
            task.trace.decision(
                "The passages do not answer the question", documents=searched.documents
            )
            return _nothing(task, query, searched, kept)
        worded = _checked(task, reply, kept)
        return _quoted(task, query, kept) if worded is None else _result(task, query, kept, *worded)


def _query(task: AgentTask) -> str:
    """What is searched for: the plan's query or the task, with the names that inputs bring."""
    arguments = task.arguments
    given = arguments.get("query")
    asked = given if isinstance(given, str) and given.strip() else task.effective_task
    inputs = {name: each for name, each in arguments.items() if name not in prompts.SEARCH}
    brought: list[str] = []
    room = _MAX_BROUGHT_CHARS
    for text in dict.fromkeys(_short_texts(inputs)):
        if text not in asked and len(text) < room:
            brought.append(text)
            room -= len(text) + 1
    return " ".join([asked, *brought])


def _short_texts(value: Any) -> Iterator[str]:
    """Texts of an input that may be a name, a code or a title, in their order."""
    if isinstance(value, str):
        if 0 < len(value.strip()) <= _MAX_NAME_CHARS:
            yield value.strip()
    elif isinstance(value, dict):
        for each in value.values():
            yield from _short_texts(each)
    elif isinstance(value, list):
        for each in value[:_MAX_INPUT_ROWS]:
            yield from _short_texts(each)


def _filters(task: AgentTask, query: str) -> dict[str, Any]:
    """Filter of the search: from the plan's input, else from the question."""
    arguments = task.arguments
    filters: dict[str, Any] = {}
    for name in prompts.LISTS:
        given = arguments.get(name)
        if isinstance(given, list) and given and all(isinstance(each, str) for each in given):
            filters[name] = given
    for name in prompts.TEXTS:
        given = arguments.get(name)
        if isinstance(given, str) and given:
            filters[name] = given
    if not filters:
        named = find_entities(query, current_day(task.input.context.fields))
        if named.period is not None:
            filters["date_from"] = named.period.first.isoformat()
            filters["date_to"] = named.period.last.isoformat()
    return filters


def _checked(
    task: AgentTask, reply: DocumentAnswer, kept: Sequence[Passage]
) -> tuple[str, list[Source]] | None:
    """The model's answer and its sources; None if it cites nothing, or made up numbers."""
    texts = {number: passage.chunk.text for number, passage in enumerate(kept, 1)}
    cited = checked_markers(reply.answer, len(kept))
    quotes, missing = found_quotes(((each.passage, each.quote) for each in reply.quotations), texts)
    if cited.unknown or missing:
        task.trace.message(
            "Citations dropped", unknown_numbers=cited.unknown, quotations_not_found=missing
        )
    if not cited.numbers:
        task.trace.message("The answer cites no passage; not used")
        return None
    names = [f"{passage.chunk.document_name} {passage.chunk.document_date}" for passage in kept]
    strange = ungrounded_numbers(
        cited.text,  # without unknown markers, whose numbers are dropped and no reason to drop more
        [*texts.values(), *names, task.effective_task, task.input.question, task.arguments],
    )
    if strange:
        task.trace.message("The answer holds numbers of no passage; not used", numbers=strange)
        return None
    sources = [as_source(kept[number - 1], quotes.get(number, "")) for number in cited.numbers]
    text = cited.text
    if absent := missing_codes(kept, task.effective_task):
        text += f"\nNone of the passages names {', '.join(each.upper() for each in absent)}."
    return text, sources


def _quoted(
    task: AgentTask, query: str, kept: Sequence[Passage], lead: str = "The documents say:"
) -> AgentResult:
    """The best passages in their own words."""
    quotes = quoted_answer(query, [passage.chunk.text for passage in kept])
    lines = [
        f"- “{' '.join(quote.split())}” [{place}]" for place, (_, quote) in enumerate(quotes, 1)
    ]
    sources = [as_source(kept[number - 1], quote) for number, quote in quotes]
    return _result(task, query, kept, "\n".join([lead, *lines]), sources)


def _result(
    task: AgentTask, query: str, kept: Sequence[Passage], answer: str, sources: Sequence[Source]
) -> AgentResult:
    task.trace.result("Answered from documents", passages=len(kept), cited=len(sources))
    return succeeded(
        task,
        answer=answer,
        data={
            "found": True,
            "chunks": as_data(kept),
            "sources": sources_data(kept),
            "query": query,
        },
        confidence=confidence(kept),
        sources=sources,
    )


def _nothing(
    task: AgentTask, query: str, searched: _Searched, read: Sequence[Passage] = ()
) -> AgentResult:
    """Answer that the documents hold no answer, with what was searched."""
    if not searched.documents:
        answer = "There are no documents that can be searched yet."
    else:
        count = searched.documents
        documents = "one document" if count == 1 else f"{count} documents"
        answer = (
            f"I do not know: nothing about this was found in your documents. "
            f"Searched in {documents} for: {query[:300]}"
        )
        if searched.nearest:
            answer += f"\nNearest to it: {', '.join(searched.nearest)}"
    return succeeded(
        task,
        answer=answer,
        data={
            "found": False,
            "chunks": as_data(read),
            "sources": sources_data(read),
            "query": query,
        },
        confidence=0.0,
        outcome=Outcome.OUTCOME_NOT_IN_SOURCE,
    )
