"""Reads OpenAPI 3.0 and 3.1 documents, JSON or YAML, of any author.

A document is content of others: its size, depth, number of values and operations are bounded,
references to other documents are not followed, and one bad entry is left out with a note.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urljoin

import yaml  # type: ignore[import-untyped]

from bos_api_docs.catalogue.model import (
    METHODS,
    ApiCatalogue,
    Operation,
    Paging,
    Parameter,
    Snippet,
)
from bos_api_docs.catalogue.schemas import Document, outline
from bos_errors import ConfigurationError

MAX_DOCUMENT_BYTES = 4 * 1024 * 1024
MAX_YAML_BYTES = 1024 * 1024
"""Much smaller, because reading YAML takes a hundred times as long."""
MAX_OPERATIONS = 2_000
_MAX_DEPTH = 60
_MAX_NODES = 400_000
_MAX_PARAMETERS = 60
_MAX_TEXT = 1_000
_MAX_SNIPPET = 4_000
_MAX_SNIPPETS = 100
_MAX_NOTES = 20
_EXTENSION = "x-bos-"
_PLACES = ("path", "query", "header", "cookie")


def read_openapi(content: bytes, name: str, *, url: str = "") -> ApiCatalogue:
    """Catalogue of the API ``name`` from its OpenAPI document.

    Args:
        content: The document.
        name: Name of the API in settings.
        url: Where it was read; relative server URLs are relative to it.

    Raises:
        ConfigurationError: it is no OpenAPI 3 document, or too large or deep.
    """
    root = _parsed(content)
    version = root.get("openapi")
    if not (isinstance(version, str) and version.startswith("3.")):
        raise ConfigurationError(
            "The document is no OpenAPI 3 document: its field openapi must be 3.0.x or 3.1.x. "
            "Convert Swagger 2 documents first."
        )
    _check_shape(root)
    document = Document(root)
    notes: list[str] = []
    operations = tuple(_operations(document, name, notes))
    info = document.resolve(root.get("info"))
    title = _text(info.get("title"), 200)
    if document.external:
        notes.append(f"{len(document.external)} references to other documents are not followed")
    if document.broken:
        notes.append(f"{len(document.broken)} references lead nowhere or in a circle")
    return ApiCatalogue(
        name=name,
        title=title or name,
        operations=operations,
        snippets=tuple(_snippets(document, name, title, info)),
        servers=tuple(_servers(root, url)),
        notes=tuple(notes[:_MAX_NOTES]),
    )


def _parsed(content: bytes) -> dict[str, Any]:
    if len(content) > MAX_DOCUMENT_BYTES:
        raise ConfigurationError(f"The document is larger than {MAX_DOCUMENT_BYTES} bytes.")
    try:
        text = content.decode("utf-8-sig")
        try:
            root = json.loads(text)
        except json.JSONDecodeError:
            root = _parsed_yaml(text)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        kind = type(error).__name__
        raise ConfigurationError(
            f"The document is neither JSON nor YAML in UTF-8 ({kind})."
        ) from None
    if not isinstance(root, dict):
        raise ConfigurationError("The document is no OpenAPI document: it must be an object.")
    return root


def _parsed_yaml(text: str) -> Any:
    if len(text.encode()) > MAX_YAML_BYTES:
        raise ConfigurationError(
            f"The YAML document is larger than {MAX_YAML_BYTES} bytes. Offer it as JSON."
        )
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(text, Loader=loader)  # noqa: S506  both loaders are safe ones


def _check_shape(root: dict[str, Any]) -> None:
    """Refuse documents that are too deep, too large, or contain themselves by YAML aliases."""
    count = 0
    waiting: list[tuple[Any, int]] = [(root, 0)]
    while waiting:
        node, depth = waiting.pop()
        count += 1
        if count > _MAX_NODES or depth > _MAX_DEPTH:
            raise ConfigurationError(
                f"The document has more than {_MAX_NODES} values, is nested more than {_MAX_DEPTH} "
                "deep, or contains itself."
            )
        children = node.values() if isinstance(node, dict) else node
        if isinstance(node, dict | list):
            waiting += [(child, depth + 1) for child in children]


def _operations(document: Document, api: str, notes: list[str]) -> Iterator[Operation]:
    paths = document.root.get("paths")
    count = 0
    for path, item in (paths if isinstance(paths, dict) else {}).items():
        if not isinstance(path, str) or not path.startswith("/"):
            notes.append("a path that does not begin with / is left out")
            continue
        found = document.resolve(item)
        shared = found.get("parameters")
        for method in METHODS:
            given = found.get(method.lower())
            if not isinstance(given, dict):
                continue
            count += 1
            if count > MAX_OPERATIONS:
                notes.append(f"operations after the first {MAX_OPERATIONS} are left out")
                return
            yield _operation(document, api, method, path, given, shared)


def _operation(
    document: Document, api: str, method: str, path: str, given: dict[str, Any], shared: Any
) -> Operation:
    own = given.get("parameters")
    parameters: dict[tuple[str, str], Parameter] = {}
    for listed in (shared, own):
        for each in (listed if isinstance(listed, list) else [])[:_MAX_PARAMETERS]:
            if (parameter := _parameter(document, each)) is not None:
                parameters[parameter.place, parameter.name] = parameter
    keyed = ("header", "idempotency-key") in {(p, n.lower()) for p, n in parameters}
    tags = given.get("tags")
    return Operation(
        api=api,
        method=method,
        path=path[:_MAX_TEXT],
        summary=_text(given.get("summary"), 200),
        description=_text(given.get("description"), _MAX_TEXT),
        operation_id=_text(given.get("operationId"), 100),
        tags=tuple(_text(tag, 60) for tag in tags[:10]) if isinstance(tags, list) else (),
        parameters=tuple(parameters.values()),
        body=_body(document, given.get("requestBody")),
        response=_response(document, given.get("responses")),
        deprecated=given.get("deprecated") is True,
        read_only=given.get(f"{_EXTENSION}read-only") is True,
        idempotent_by_key=keyed or given.get(f"{_EXTENSION}idempotent-by-key") is True,
        paging=_paging(given.get(f"{_EXTENSION}pagination")),
    )


def _parameter(document: Document, given: Any) -> Parameter | None:
    found = document.resolve(given)
    name, place = found.get("name"), found.get("in")
    if not isinstance(name, str) or not name or place not in _PLACES:
        return None
    schema = document.resolve(found.get("schema"))
    form = outline(document, schema)[:200] if schema else ""
    default = schema.get("default")
    if isinstance(default, str | int | float | bool):
        form += f", default {_text(str(default), 40)}"
    return Parameter(
        name=name[:100],
        place=place,
        required=found.get("required") is True or place == "path",
        description=_text(found.get("description"), 300),
        form=form,
    )


def _body(document: Document, given: Any) -> str:
    found = document.resolve(given)
    return _content(document, found.get("content"))


def _response(document: Document, given: Any) -> str:
    for code in ("200", "201", "202", "2XX", "default"):
        answers = given if isinstance(given, dict) else {}
        if code in answers:
            return _content(document, document.resolve(answers[code]).get("content"))
    return ""


def _content(document: Document, given: Any) -> str:
    kinds = given if isinstance(given, dict) else {}
    chosen = next((kind for kind in kinds if "json" in str(kind)), next(iter(kinds), None))
    described = kinds.get(chosen) if chosen is not None else None
    if not isinstance(described, dict) or "schema" not in described:
        return ""
    return outline(document, described["schema"])


def _paging(given: Any) -> Paging:
    if not isinstance(given, dict):
        return Paging()
    names = ("page", "offset", "cursor", "size", "next", "rows")
    return Paging(**{name: _text(given.get(name), 100) for name in names})


def _snippets(document: Document, api: str, title: str, info: dict[str, Any]) -> Iterator[Snippet]:
    """The document's own prose: of the API, and of each tag."""
    about = _text(info.get("description"), _MAX_SNIPPET)
    if about:
        yield Snippet(api, title or "About", about)
    tags = document.root.get("tags")
    for tag in (tags if isinstance(tags, list) else [])[:_MAX_SNIPPETS]:
        if isinstance(tag, dict) and (text := _text(tag.get("description"), _MAX_SNIPPET)):
            yield Snippet(api, _text(tag.get("name"), 100) or "Tag", text)


def _servers(root: dict[str, Any], url: str) -> Iterator[str]:
    servers = root.get("servers")
    for server in (servers if isinstance(servers, list) else [])[:10]:
        given = server.get("url") if isinstance(server, dict) else None
        if isinstance(given, str) and "{" not in given:
            try:
                yield urljoin(url, given)
            except ValueError:
                continue


def _text(given: Any, limit: int) -> str:
    return " ".join(given.split())[:limit] if isinstance(given, str) else ""
