"""Where calls may lead: paths, parameters, base URLs, next pages, redirects."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import JSONResponse

from bos_agentkit import AgentFailure
from bos_api_docs.calls.urls import rendered_path, rendered_query
from bos_http.url import parse

from .api_under_test import ApiUnderTest, planned

pytestmark = pytest.mark.security

TASK = "Show the order"
# ``bos_http`` refuses every form of such addresses, and its tests have the table; next pages and
# redirects to them are in ``tests/security/test_fetching_agents.py``.
INWARD = ("http://127.0.0.1:9/", "http://169.254.169.254/latest/meta-data/", "file:///etc/passwd")


@pytest.mark.requirement("E-08")
@pytest.mark.parametrize(
    ("path", "values", "expected"),
    [
        ("/a/:id", {"id": "7"}, "/a/7"),
        ("/a/{id}/b/{other-id}", {"{id}": "x y", "other-id": "ü"}, "/a/x%20y/b/%C3%BC"),
        ("/a/:id", {":id": "1/2?x#y"}, "/a/1%2F2%3Fx%23y"),
        ("/a/{id}", {"id": "%2e%2e"}, "/a/%252e%252e"),
        ("/v1/accounts:signIn", {}, "/v1/accounts:signIn"),
    ],
)
def test_path_parameters_are_encoded(path: str, values: dict[str, str], expected: str) -> None:
    assert rendered_path(path, values)[0] == expected


@pytest.mark.requirement("E-08")
@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("/a/:id", {}),
        ("/a/{id}", {"id": " "}),  # would be the whole list instead of one
        ("/a/{id}", {"id": ".."}),
        ("/a/{id", {"id": "7"}),
        ("", {}),
        ("//evil.example/a", {}),
        ("/a/../b", {}),
        ("/a%2f..%2fb", {}),
        ("/a/%252e%252e/b", {}),
        ("/a%5cb", {}),
        ("/a b", {}),
        ("/a\r\nHost: x", {}),
        ("/a\u202eb", {}),
        ("/a%zz", {}),
        ("/" + "a" * 5_000, {}),
    ],
)
def test_a_path_that_is_not_plain_is_refused(path: str, values: dict[str, str]) -> None:
    with pytest.raises(AgentFailure) as refused:
        rendered_path(path, values)
    assert refused.value.type == "PathResolutionError"


@given(st.text(min_size=1, max_size=30), st.text(max_size=30))
def test_no_parameter_changes_host_or_path(value: str, query: str) -> None:
    """A parameter stays one segment with any content, and a query stays the query."""
    try:
        path, _ = rendered_path("/v1/orders/{id}/lines", {"id": value})
    except (AgentFailure, UnicodeEncodeError):
        return
    target = parse(
        f"https://api.example.com/base{path}?{rendered_query([], {'q': query})}", max_chars=9_000
    )
    assert target.host == "api.example.com"
    assert target.path.startswith("/base/v1/orders/")
    assert target.path.endswith("/lines")
    assert target.path.count("/") == 5


def test_a_query_does_not_change_the_method() -> None:
    for name in ("_method", "X-HTTP-Method-Override"):
        with pytest.raises(AgentFailure):
            rendered_query([], {name: "DELETE"})


async def test_base_url_of_a_request_needs_the_policy(start: Any, api: ApiUnderTest) -> None:
    agent = await start(planned(TASK), own={"token": "operator"})
    for url in INWARD:
        done = await agent.do(TASK, context={"api_base_url": url})
        assert done.result.error.type == "HttpRequestError", url
        assert "api_base_url" in done.result.error.message
    assert api.seen == []


async def test_a_base_url_ends_with_its_path(start: Any, api: ApiUnderTest) -> None:
    agent = await start(planned(TASK))
    for end in ("?x=1", "/a/../b"):
        done = await agent.do(TASK, context={"api_base_url": api.base_url + end})
        assert done.result.error.type == "ConfigurationError", end
    assert api.seen == []


async def test_next_page_stays_at_origin(start: Any, api: ApiUnderTest, serve_api: Any) -> None:
    other = await serve_api()
    agent = await start(
        planned(TASK, path="/list"), own={"token": "operator"}, allowed=(other.base_url,)
    )
    headers = {"Link": f'<{other.base_url}/orders>; rel="next"'}
    api.replies["/list"] = JSONResponse([{"a": 1}], headers=headers)
    done = await agent.do(TASK)
    assert done.data["truncated"]
    assert "another origin" in done.result.answer
    assert other.seen == []
