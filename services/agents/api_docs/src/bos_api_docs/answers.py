"""Answers without a model: lists of endpoints, documentation, and responses as they stand."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from bos.common.v1 import Source, SourceType, Table
from bos_api_docs.calls.results import CallResult
from bos_api_docs.catalogue.index import CatalogueIndex, Found
from bos_api_docs.catalogue.model import ApiCatalogue, Operation, Snippet
from bos_chassis.values import make_table, render_value, to_value

_MAX_LISTED = 60
_MAX_FIELDS = 12
_MAX_VALUE_CHARS = 200
_ABOUT_ALL = re.compile(
    r"\b(?:list|show|give|name|which|what)\b[^.?!]{0,60}"
    r"\b(?:apis|api\s+(?:points?|endpoints|routes|calls)|endpoints|routes)\b",
    re.IGNORECASE,
)
_ALL = re.compile(
    r"\b(?:all|every|available|exist|offered|documented|do(?:es)? (?:you|the api) (?:have|know))\b",
    re.IGNORECASE,
)
_BARE = re.compile(
    r"\s*(?:please\s+)?(?:list|show)(?:\s+me)?(?:\s+the)?\s+(?:apis?|endpoints|routes)"
    r"(?:\s+and\b.*)?[\s.?!]*\Z",
    re.IGNORECASE,
)
_ABOUT_DOCUMENTATION = re.compile(
    r"\b(?:document\w*|endpoint|which parameters|what parameters|how (?:do|can) (?:i|we)|"
    r"request body|status codes?|authenticat\w*|sign(?:ing)? in)\b",
    re.IGNORECASE,
)


def asks_for_all(task: str) -> bool:
    """Whether a task asks for the list of all endpoints, in the usual English words."""
    if _BARE.match(task):
        return True
    return _ABOUT_ALL.search(task) is not None and _ALL.search(task) is not None


def asks_about_documentation(task: str) -> bool:
    """Whether a task asks about an API rather than for its data, in the usual English words."""
    return asks_for_all(task) or _ABOUT_DOCUMENTATION.search(task) is not None


def listing(index: CatalogueIndex, problems: Mapping[str, str]) -> tuple[str, Table, list[Any]]:
    """Answer, table and data of a list of all endpoints."""
    rows = [
        [each.api, each.method, each.path, each.summary or each.description, access(each)]
        for each in index.operations
    ]
    columns = ["api", "method", "path", "description", "approval"]
    lines = [f"{_counted(index)}:"]
    for each in index.operations[:_MAX_LISTED]:
        about = each.summary or each.description
        lines.append(f"- {each.method} {each.path}" + (f": {about[:120]}" if about else ""))
    if len(rows) > _MAX_LISTED:
        lines.append(f"and {len(rows) - _MAX_LISTED} more, in the table.")
    lines += [problem_text(name, why) for name, why in problems.items()]
    data = [dict(zip(columns, row, strict=True)) for row in rows]
    return "\n".join(lines), make_table(columns, rows), data


def access(operation: Operation) -> str:
    """Whether a call needs approval, for lists."""
    return "none" if operation.reads else "required"


def problem_text(api: str, why: str) -> str:
    """That the catalogue of an API could not be read."""
    return f"The catalogue of the API {api} could not be read: {why}"


def from_documentation(found: Found) -> str:
    """Documentation about a task, quoted without a model."""
    lines = [f"- {each.title}" for each in found.operations]
    texts = [f"{each.title}: {each.text[:500]}" for each in found.snippets[:3]]
    return "\n\n".join(["These documented endpoints fit best:\n" + "\n".join(lines), *texts])


def plain_answer(result: CallResult) -> str:
    """A response in a sentence, without a model's words."""
    title = f"{result.method} {result.url.partition('?')[0]}"
    if result.rows is not None:
        count = len(result.rows)
        rows = "no rows" if not count else "one row" if count == 1 else f"{count} rows"
        text = f"{title} returned {rows}"
        if count == 1:
            text += f": {_fields(result.rows[0])}"
        return f"{text}. {result.more}".strip() if not text.endswith(".") else text
    if isinstance(result.body, dict):
        said = _fields(result.body)
    elif result.body in (None, ""):
        said = "no content"
    else:
        said = render_value(to_value(result.body))[: 3 * _MAX_VALUE_CHARS]
    return f"{title} answered {result.status_code}: {said}. {result.more}".strip()


def _fields(given: Mapping[str, Any]) -> str:
    shown = [
        f"{name}={render_value(to_value(value))[:_MAX_VALUE_CHARS]}"
        for name, value in list(given.items())[:_MAX_FIELDS]
    ]
    return ", ".join(shown) + (", …" if len(given) > _MAX_FIELDS else "")


def api_source(api: ApiCatalogue | None, name: str, result: CallResult) -> Source:
    """The API as a source of the answer."""
    return Source(
        type=SourceType.SOURCE_TYPE_API,
        title=(api.title if api is not None else "") or name,
        uri=result.url.partition("?")[0],
        reference=f"{result.method} {result.url}"[:500],
    )


def documentation_sources(snippets: Sequence[Snippet]) -> list[Source]:
    """Documentation as sources of an answer."""
    return [
        Source(
            type=SourceType.SOURCE_TYPE_API,
            title=each.reference,
            excerpt=each.text[:300],
            reference=each.reference,
        )
        for each in snippets
    ]


def _counted(index: CatalogueIndex) -> str:
    apis = [each.title or each.name for each in index.catalogues if each.operations]
    count = len(index.operations)
    return f"{', '.join(apis) or 'No API'} offers {count} documented endpoints"
