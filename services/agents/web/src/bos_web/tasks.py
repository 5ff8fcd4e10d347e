"""What a step wants: pages to open, or a search; by the plan's input, else by the task. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast, get_args

from bos_errors import InvalidArgument
from bos_web.addresses import addresses_in
from bos_web.replies import SearchType, TimeRange
from bos_web.search.provider import MAX_URL_CHARS
from bos_web.strategy import Strategy, by_rule, fitting

_TYPES: Mapping[str, SearchType] = {
    "web_search": "basic",
    "web_search_news": "news",
    "web_search_deep": "deep",
}
SEARCH_TOOLS: Mapping[SearchType, str] = {kind: name for name, kind in _TYPES.items()}
_MAX_ADDRESSES = 50


@dataclass(frozen=True, slots=True)
class Given:
    """What the plan's input says of a search; None where it leaves it open."""

    query: str | None
    search_type: SearchType | None
    time_range: TimeRange | None

    @property
    def is_complete(self) -> bool:
        """Whether no strategy has to be asked for."""
        return self.query is not None and self.search_type is not None

    def over(self, strategy: Strategy) -> Strategy:
        """The strategy with what the plan says in its place."""
        return Strategy(
            query=fitting(self.query or strategy.query) or strategy.query,
            search_type=self.search_type or strategy.search_type,
            time_range=self.time_range or strategy.time_range,
        )


def given_search(tool: str, arguments: Mapping[str, Any]) -> Given:
    """The parts of a search that the plan says.

    Raises:
        InvalidArgument: names the invalid argument.
    """
    query = arguments.get("query")
    if query is not None and not isinstance(query, str):
        raise InvalidArgument.field("input.sub_task_input.query", "must be a text")
    kind = _one_of("search_type", get_args(SearchType), arguments)
    return Given(
        query=query if query and query.strip() else None,
        search_type=cast("SearchType | None", kind) or _TYPES.get(tool),
        time_range=_range(arguments),
    )


def pages_to_open(
    tool: str, arguments: Mapping[str, Any], task: str, *, searches: bool
) -> list[str]:
    """Addresses that the step is to open; none where it is to search.

    Args:
        tool: Tool that the plan names, or empty.
        arguments: The plan's input.
        task: The step's task; its addresses count where neither query nor tool are given.
        searches: Whether the agent can search.

    Raises:
        InvalidArgument: ``url``, ``urls`` or ``search_results`` hold something else, or a tool that
            opens pages is given none.
    """
    found = _named(arguments)
    if not found and tool in ("fetch_url", "explore_search_results"):
        found = addresses_in(task) if tool == "fetch_url" else []
        if not found and "search_results" not in arguments:
            field = "url" if tool == "fetch_url" else "search_results"
            raise InvalidArgument.field(f"input.sub_task_input.{field}", f"is needed by {tool}")
        return found
    if found or tool in _TYPES or arguments.get("query"):
        return found
    in_task = addresses_in(task)
    return in_task if in_task or searches else []


def is_opening(tool: str, arguments: Mapping[str, Any]) -> bool:
    """Whether the plan asks for pages to be opened, even if it names none."""
    opens = tool in ("fetch_url", "explore_search_results")
    return opens or any(name in arguments for name in ("url", "urls", "search_results"))


def rule_strategy(task: str, given: Given) -> Strategy:
    """The strategy by rule, the plan's parts in place."""
    return given.over(by_rule(given.query or task))


def _named(arguments: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    for name in ("url", "urls", "search_results"):
        value = arguments.get(name)
        items = value if isinstance(value, list) else [value] if value is not None else []
        for item in items[:_MAX_ADDRESSES]:
            url = item.get("url") if isinstance(item, dict) else item
            if not isinstance(url, str) or not url.strip() or len(url) > MAX_URL_CHARS:
                raise InvalidArgument.field(
                    f"input.sub_task_input.{name}",
                    f"must be web addresses of at most {MAX_URL_CHARS} characters, or results of a "
                    "search with a url each",
                )
            found.append(url.strip())
    return list(dict.fromkeys(found))


def _range(arguments: Mapping[str, Any]) -> TimeRange | None:
    days = arguments.get("days")
    if days is not None:
        if isinstance(days, bool) or not isinstance(days, int) or days < 1:
            raise InvalidArgument.field("input.sub_task_input.days", "must be a number from 1 on")
        names: tuple[tuple[int, TimeRange], ...] = ((1, "day"), (7, "week"), (31, "month"))
        return next((name for most, name in names if days <= most), "year")
    return cast("TimeRange | None", _one_of("time_range", get_args(TimeRange), arguments))


def _one_of(name: str, allowed: tuple[str, ...], arguments: Mapping[str, Any]) -> str | None:
    value = arguments.get(name)
    if value is None or value == "":
        return None
    if value not in allowed:
        raise InvalidArgument.field(
            f"input.sub_task_input.{name}", f"must be one of {', '.join(allowed)}"
        )
    return str(value)
