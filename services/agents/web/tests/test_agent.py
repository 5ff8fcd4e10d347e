"""The agent over gRPC, before a search API, a site and a scripted model."""

from typing import Any

import pytest

from bos.agent.v1 import TaskMetadata
from bos.common.v1 import Outcome, SourceType
from bos_chassis.values import to_value_map
from bos_testkit.fixtures.agent_harness import AWAITING, FAILED, SUCCEEDED
from bos_testkit.scripted_model.replies import Fixture, fixture

from .web_servers import SearchApi, Site, html, tavily

TASK = "How much did prices of grey iron castings rise in May?"
RISE = "Prices of grey iron castings rose by 4.2 percent in May, the association said."
FAIR = "The pump fair opens in Coimbatore on 12 July."


def reply(schema: str, json: Any, *contains: str) -> Fixture:
    return fixture(f"{schema} {contains}", [TASK, *contains], schema=schema, json=json)


def strategy(query: str, kind: str = "basic", time_range: str = "any") -> Fixture:
    plan = {"query": query, "search_type": kind, "time_range": time_range}
    return reply("SearchStrategy", plan)


def answer(
    text: str,
    *quotations: tuple[int, str],
    found: bool = True,
    open_pages: tuple[int, ...] = (),
    seen: tuple[str, ...] = (),
) -> Fixture:
    said = [{"page": number, "quote": quote} for number, quote in quotations]
    shape = {"found": found, "answer": text, "quotations": said, "open_pages": list(open_pages)}
    return reply("WebAnswer", shape, *seen)


@pytest.fixture(autouse=True)
def two_results(api: SearchApi, site: Site) -> None:
    site.add("/fair", html(f"<p>{FAIR}</p>", "Fair"))
    site.add("/castings", html(f"<p>{RISE} Orders came to 1,250 tonnes.</p>", "Castings"))
    api.reply = tavily(
        {"title": "Fair", "url": f"{site.url}/fair", "content": FAIR, "score": 0.4},
        {"title": "Castings", "url": f"{site.url}/castings", "content": RISE, "score": 0.8},
        answer="They rose by 4.2 percent.",
    )


@pytest.mark.requirement("H-01", "H-03", "H-05", "H-06")
async def test_answer_cites_the_pages_that_carry_it(start: Any, api: SearchApi, site: Site) -> None:
    web = await start(
        strategy("grey iron castings price May"),
        answer("By 4.2 percent [1].", (1, "rose by 4.2 percent in May")),
    )
    outcome = await web.do(TASK)

    assert outcome.result.status == SUCCEEDED
    assert outcome.result.answer == "By 4.2 percent [1]."
    [source] = outcome.result.sources
    assert source.type == SourceType.SOURCE_TYPE_WEB
    assert (source.title, source.uri) == ("Castings", f"{site.url}/castings")
    assert source.excerpt == "rose by 4.2 percent in May"
    data = outcome.data
    sent = api.requests[0]["body"]["query"]
    assert data["search_query"] == sent == "grey iron castings price May"
    assert data["search_type"] == "basic"
    assert data["tavily_answer"] == "They rose by 4.2 percent."
    assert data["fetched_pages"] == 0
    page = {"title": "Castings", "url": f"{site.url}/castings"}
    assert data["search_results"][0] == {**page, "snippet": RISE, "score": 0.8}
    assert data["sources"][0]["relevance_score"] == 0.8
    assert outcome.result.confidence == pytest.approx(0.8)
    assert outcome.result.tainted
    assert outcome.result.usage.model_calls == 2
    assert site.asked == []


@pytest.mark.requirement("H-01")
async def test_plan_with_query_and_type_needs_no_strategy(start: Any, api: SearchApi) -> None:
    web = await start(answer("By 4.2 percent [1]."))
    given = {"query": "castings", "search_type": "news", "days": 7}
    outcome = await web.do(TASK, given)
    assert web.prompts("SearchStrategy") == []
    assert outcome.result.usage.model_calls == 1
    sent = api.requests[0]["body"]
    assert (sent["query"], sent["topic"], sent["days"]) == ("castings", "news", 7)


@pytest.mark.requirement("H-02", "H-04")
async def test_deep_search_reads_pages_whole(start: Any, api: SearchApi, site: Site) -> None:
    web = await start(answer("1,250 tonnes were ordered [1].", seen=("Orders came to",)))
    outcome = await web.do(TASK, {"query": "castings"}, tool_name="web_search_deep")
    assert outcome.result.answer == "1,250 tonnes were ordered [1]."
    sent = api.requests[0]["body"]
    assert (sent["search_depth"], sent["include_raw_content"]) == ("advanced", True)
    assert site.paths == {"/robots.txt": 1, "/castings": 1, "/fair": 1}
    assert outcome.data["fetched_pages"] == 2
    assert "1,250 tonnes" in outcome.data["pages"][0]["text"]


async def test_provider_pages_are_not_refetched(start: Any, api: SearchApi, site: Site) -> None:
    for each in api.reply["results"]:
        each["raw_content"] = f"{each['content']} Read by the provider: 777 tonnes."
    web = await start(answer("777 tonnes [1]."))
    outcome = await web.do(TASK, tool_name="web_search_deep", inputs={"query": "castings"})
    assert outcome.result.answer == "777 tonnes [1]."
    assert site.asked == []
    assert outcome.data["fetched_pages"] == 2


@pytest.mark.requirement("H-04", "H-07")
async def test_model_may_ask_once_for_whole_pages(start: Any, site: Site) -> None:
    web = await start(
        answer("", found=False, open_pages=(1, 1, 9)),
        answer("1,250 tonnes [1].", seen=("Orders came to",)),
    )
    outcome = await web.do(TASK, {"query": "castings"}, tool_name="WebSearchTool")
    assert outcome.result.answer == "1,250 tonnes [1]."
    assert site.paths["/castings"] == 1
    assert site.paths["/fair"] == 0
    assert outcome.result.usage.model_calls == 2


@pytest.mark.requirement("H-05")
async def test_without_a_model_the_best_results_are_quoted(web: Any, api: SearchApi) -> None:
    outcome = await web.do(f"Search the web: {TASK}")
    assert outcome.result.status == SUCCEEDED
    assert f"“{RISE}” [1]" in outcome.result.answer
    assert outcome.result.sources[0].excerpt == RISE
    assert 0 < outcome.result.confidence < 0.6
    assert api.requests[0]["body"]["query"] == TASK.rstrip("?")


@pytest.mark.parametrize(
    "said",
    [
        answer("By 4.75 percent [1]."),  # a number of no page
        answer("By 4.2 percent."),  # cites nothing
        answer("By 4.2 percent [7]."),  # cites what was not shown
    ],
    ids=["invented number", "no citation", "unknown citation"],
)
async def test_ungrounded_answer_is_replaced_by_quotations(start: Any, said: Fixture) -> None:
    web = await start(said)
    outcome = await web.do(TASK, {"query": "castings", "search_type": "basic"})
    assert outcome.result.answer.startswith("The web says:\n- “")
    assert RISE in outcome.result.answer


async def test_nothing_found_is_said_with_the_query(web: Any, api: SearchApi) -> None:
    api.reply = tavily()
    outcome = await web.do(TASK, {"query": "castings", "search_type": "basic"})
    assert outcome.result.answer.endswith("Searched for: castings")
    assert not outcome.result.tainted


@pytest.mark.requirement("H-04", "H-07")
@pytest.mark.parametrize("name", ["ReadWebpageTool", ""])
async def test_page_is_read_by_address(start: Any, site: Site, api: SearchApi, name: str) -> None:
    web = await start(answer("By 4.2 percent [1]."))
    outcome = await web.do(TASK, {"url": f"{site.url}/castings"}, tool_name=name)
    assert outcome.result.answer == "By 4.2 percent [1]."
    [page] = outcome.data["pages"]
    assert page["title"] == "Castings"
    assert RISE in page["text"]
    assert "newsletter" not in page["text"]
    assert "Sign in" not in page["text"]
    assert "tracked" not in page["text"]
    assert outcome.data["fetched_pages"] == 1
    assert outcome.result.tainted
    assert api.requests == []


@pytest.mark.requirement("H-09", "C-19")
async def test_results_of_a_search_are_opened_later(start: Any, site: Site) -> None:
    web = await start(answer("1,250 tonnes [1]."))
    run = TaskMetadata(run_id="run-1")
    found = await web.do(TASK, {"query": "c", "search_type": "basic"}, metadata=run)
    web.model.requests.clear()
    outcome = await web.do(
        TASK,
        {"search_results": found.data["search_results"]},
        tool_name="ExploreSearchResults",
        metadata=run,
        tainted=True,
        dependency_outputs={"search": to_value_map(found.data)},
    )
    assert outcome.result.status == SUCCEEDED
    assert [page["title"] for page in outcome.data["pages"]] == ["Castings", "Fair"]
    assert "1,250 tonnes" in outcome.data["pages"][0]["text"]


@pytest.mark.parametrize(
    ("inputs", "name"),
    [
        ({"days": 0}, "days"),
        ({"query": ["a"]}, "query"),
        ({"search_results": [{"title": "no address"}]}, "search_results"),
    ],
)
async def test_wrong_input_is_refused_by_name(
    web: Any, api: SearchApi, inputs: dict[str, Any], name: str
) -> None:
    outcome = await web.do(TASK, inputs)
    assert outcome.result.status == FAILED
    assert outcome.result.error.type == "InvalidArgument"
    assert f"input.sub_task_input.{name}" in outcome.result.error.details
    assert api.requests == []


@pytest.mark.requirement("A-08", "H-07", "H-10")
async def test_card_says_what_is_configured(start: Any) -> None:
    for provider, searches in (("tavily", True), ("none", False)):
        settings = {} if searches else {"search_url": "", "search_key": None}
        web = await start(models=False, search_provider=provider, **settings)
        card = await web.card()
        assert {"web_agent", "ResearchAgent"} <= set(card.aliases)
        names = {tool.name for tool in card.tools}
        assert ({"web_search", "web_search_news", "web_search_deep"} <= names) is searches
        assert {"fetch_url", "explore_search_results"} <= names
        assert ("news" in card.keywords) is searches


async def test_search_without_a_provider_says_what_to_set(start: Any) -> None:
    web = await start(models=False, search_provider="none")
    outcome = await web.do(TASK)
    assert outcome.result.error.type == "ConfigurationError"
    assert "BOS_WEB_SEARCH_PROVIDER" in outcome.result.error.message


async def test_prompts_hold_untrusted_text_between_fences_only(start: Any) -> None:
    web = await start(strategy("castings"), answer("By 4.2 percent [1]."))
    upstream = {"read": to_value_map({"text": "Untrusted words upstream"})}
    await web.do(TASK, dependency_outputs=upstream, tainted=True)
    for prompt in (*web.prompts("SearchStrategy"), *web.prompts("WebAnswer")):
        parts = prompt.split("<untrusted>")
        outside = parts[0] + "".join(part.partition("</untrusted>")[2] for part in parts[1:])
        for words in ("words upstream", "association said", "/castings", "They rose"):
            assert words not in outside
    assert "words upstream" in web.prompts("SearchStrategy")[0]


async def test_unknown_addresses_wait_for_approval_on_tainted_steps(web: Any, site: Site) -> None:
    leak = f"{site.url}/castings?said=secret"
    outcome = await web.do(TASK, {"url": leak}, tainted=True)
    assert outcome.result.status == AWAITING
    [action] = outcome.result.proposed_actions
    assert (action.tool, action.summary) == ("fetch_url", f"Read the web page {leak}")
    assert site.asked == []

    asked = await web.do(TASK, {"url": leak}, tainted=True, question=f"What is on {leak}?")
    assert asked.result.status == SUCCEEDED
    assert site.paths["/castings"] == 1


async def test_approved_address_is_read_once_and_answered_from(web: Any, site: Site) -> None:
    url = f"{site.url}/castings"
    waiting = await web.do(TASK, {"url": url}, tainted=True)
    approval = {"approved_actions": list(waiting.result.proposed_actions)}
    outcome = await web.do(TASK, {"url": url}, tainted=True, approval_context=approval)
    assert outcome.result.status == SUCCEEDED
    assert RISE in outcome.result.answer
    assert site.paths["/castings"] == 1


async def test_addresses_in_pages_reach_neither_answer_nor_data(start: Any, api: SearchApi) -> None:
    evil = "https://collector.example/c?d=words"
    for each in api.reply["results"]:
        each["content"] += f" See {evil} and ![x]({evil})."
        each["title"] += f" {evil}"
    web = await start(answer(f"By 4.2 percent [1]. ![seal]({evil}) [more]({evil}) {evil}"))
    outcome = await web.do(TASK, {"query": "castings", "search_type": "basic"})
    assert outcome.result.answer.startswith("By 4.2 percent [1].")
    assert "collector" not in str(outcome.data)
    assert "collector" not in str(outcome.result)


async def test_model_that_never_finds_anything_is_asked_twice_at_most(start: Any) -> None:
    web = await start(answer("", found=False, open_pages=(1, 2)))
    outcome = await web.do(TASK, {"query": "castings", "search_type": "basic"})
    assert (outcome.data["found"], outcome.result.confidence) == (False, 0)
    assert outcome.result.outcome == Outcome.OUTCOME_EMPTY
    assert len(web.prompts("WebAnswer")) == 2


async def test_address_in_the_task_is_read(web: Any, site: Site, api: SearchApi) -> None:
    outcome = await web.do(f"What does {site.url}/castings say about castings?")
    assert RISE in outcome.result.answer
    assert api.requests == []


@pytest.mark.requirement("H-09")
async def test_results_that_cannot_be_opened_are_named(web: Any, site: Site) -> None:
    results = [{"url": f"{site.url}/gone"}, {"url": f"{site.url}/castings"}]
    outcome = await web.do(TASK, {"search_results": results}, tool_name="ExploreSearchResults")
    assert outcome.data["fetched_pages"] == 1
    unread = [{"url": f"{site.url}/gone", "reason": "There is no such page."}]
    assert outcome.data["unread"] == unread
