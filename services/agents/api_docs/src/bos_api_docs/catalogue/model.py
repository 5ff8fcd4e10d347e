"""Catalogue of one API: operations, parameters, snippets; immutable, shared by steps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import unquote

Place = Literal["path", "query", "header", "cookie"]
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
FREE_METHODS = frozenset({"GET", "HEAD"})
"""Methods that only read, by HTTP's own definition."""

_PLACEHOLDER = re.compile(r"\{([^{}/]+)\}|(?<=/):([A-Za-z_][\w-]*)")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A documented parameter of an operation."""

    name: str
    place: Place
    required: bool = False
    description: str = ""
    form: str = ""
    """Type and allowed values, such as ``integer`` or ``low|high``."""


@dataclass(frozen=True, slots=True)
class Paging:
    """How an operation is paged, by names of query parameters; empty names: recognised by name."""

    page: str = ""
    offset: str = ""
    cursor: str = ""
    size: str = ""
    next: str = ""
    """Dotted path in the response to the next cursor or URL."""
    rows: str = ""
    """Dotted path in the response to the list of rows."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One documented endpoint."""

    api: str
    method: str
    path: str
    """Template with ``{name}`` or ``:name`` placeholders, relative to the base URL."""
    summary: str = ""
    description: str = ""
    operation_id: str = ""
    tags: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    body: str = ""
    """Outline of the request body."""
    response: str = ""
    """Outline of a successful response."""
    deprecated: bool = False
    read_only: bool = False
    """Whether the catalogue marks a POST as one that only reads."""
    idempotent_by_key: bool = False
    """Whether a repetition with the same ``Idempotency-Key`` has no second effect."""
    paging: Paging = field(default_factory=Paging)

    @property
    def key(self) -> tuple[str, str]:
        """Method, and path with its placeholders made anonymous."""
        return self.method, template_key(self.path)

    @property
    def reads(self) -> bool:
        """Whether a call needs no approval by its nature."""
        return self.method in FREE_METHODS or (self.method == "POST" and self.read_only)

    @property
    def title(self) -> str:
        """Method, path and summary in one line."""
        about = self.summary or self.description
        return f"{self.method} {self.path}" + (f": {about}" if about else "")

    def documents(self, place: Place) -> frozenset[str]:
        """Names of its parameters at ``place``, lower case for headers."""
        names = (each.name for each in self.parameters if each.place == place)
        return frozenset(map(str.lower, names) if place == "header" else names)


@dataclass(frozen=True, slots=True)
class Snippet:
    """A piece of documentation."""

    api: str
    title: str
    text: str

    @property
    def reference(self) -> str:
        """Name of the snippet in traces and sources."""
        return f"{self.api}: {self.title}"


@dataclass(frozen=True, slots=True)
class ApiCatalogue:
    """Everything known of one API."""

    name: str
    title: str
    operations: tuple[Operation, ...] = ()
    snippets: tuple[Snippet, ...] = ()
    servers: tuple[str, ...] = ()
    """Server URLs that its document names."""
    notes: tuple[str, ...] = ()
    """Parts of the document that were left out, and why."""

    def find(self, method: str, path: str) -> Operation | None:
        """Operation of a planned call: its template, or a path that fits it."""
        wanted = method, template_key(path)
        for operation in self.operations:
            if operation.key == wanted:
                return operation
        fitting = [
            operation
            for operation in self.operations
            if operation.method == method and _fits(operation.path, path)
        ]
        # The template with the fewest placeholders is the most specific one.
        return min(fitting, key=lambda each: len(placeholders(each.path)), default=None)


def placeholders(path: str) -> list[str]:
    """Names of the placeholders of a path template, in order."""
    return [one or other for one, other in _PLACEHOLDER.findall(path)]


def substituted(path: str, values: Mapping[str, str]) -> str:
    """``path`` with the placeholders that ``values`` names replaced by their values."""

    def value(match: re.Match[str]) -> str:
        return values.get(match[1] or match[2], match[0])

    return _PLACEHOLDER.sub(value, path)


def template_key(path: str) -> str:
    """Path with anonymous placeholders and no final slash, for comparisons."""
    return _PLACEHOLDER.sub("{}", path).rstrip("/") or "/"


def merged(base: ApiCatalogue, over: ApiCatalogue) -> ApiCatalogue:
    """``base`` with the entries of ``over``, which replace operations of the same method and path.

    Parameters, body and response of a replaced operation are kept where ``over`` has none.
    """
    known = {operation.key: operation for operation in base.operations}
    for operation in over.operations:
        known[operation.key] = _over(known.get(operation.key), operation)
    return ApiCatalogue(
        name=base.name,
        title=over.title or base.title,
        operations=tuple(known.values()),
        snippets=(*over.snippets, *base.snippets),
        servers=base.servers,
        notes=(*base.notes, *over.notes),
    )


def _over(base: Operation | None, over: Operation) -> Operation:
    if base is None:
        return over
    return Operation(
        api=over.api,
        method=over.method,
        path=base.path,
        summary=over.summary or base.summary,
        description=over.description or base.description,
        operation_id=base.operation_id,
        tags=base.tags,
        parameters=_joined(base.parameters, over.parameters),
        body=over.body or base.body,
        response=over.response or base.response,
        deprecated=base.deprecated,
        # The curated file alone decides: it is the operator's.
        read_only=over.read_only,
        idempotent_by_key=over.idempotent_by_key or base.idempotent_by_key,
        paging=over.paging if over.paging != Paging() else base.paging,
    )


def _joined(base: Iterable[Parameter], over: Iterable[Parameter]) -> tuple[Parameter, ...]:
    return tuple({(each.place, each.name): each for each in (*base, *over)}.values())


def _fits(template: str, path: str) -> bool:
    ours, theirs = template.strip("/").split("/"), path.strip("/").split("/")
    return len(ours) == len(theirs) and all(
        _PLACEHOLDER.search(f"/{own}") is not None or unquote(own) == unquote(other)
        for own, other in zip(ours, theirs, strict=True)
    )
