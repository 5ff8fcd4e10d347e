"""Curated catalogue of an API: a YAML file of the operator, strictly parsed.

::

    title: Orders API
    endpoints:
      - method: GET
        path: /v1/orders/{order_id}
        description: One order with its lines
        parameters:
          order_id: {in: path, description: Number of the order}
      - method: POST
        path: /v1/orders/search
        description: Searches orders
        read_only: true             # needs no approval
      - method: POST
        path: /v1/orders
        description: Places an order
        body: "{sku*: text, quantity*: integer}"
        idempotent_by_key: true     # a repetition with the same Idempotency-Key counts once
        pagination: {cursor: after, next: paging.next, rows: items}
    snippets:
      - {title: Signing in, text: Tokens are valid for an hour.}

An endpoint of the OpenAPI document with the same method and path is completed by it.
"""

from __future__ import annotations

from typing import Literal

import yaml  # type: ignore[import-untyped]
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from bos_api_docs.catalogue.model import (
    ApiCatalogue,
    Operation,
    Paging,
    Parameter,
    Snippet,
    placeholders,
)
from bos_errors import ConfigurationError

MAX_CURATED_BYTES = 512 * 1024


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Parameter(_Strict):
    place: Literal["path", "query", "header"] = Field(default="query", alias="in")
    description: str = Field(default="", max_length=300)
    required: bool = False
    form: str = Field(default="", alias="type", max_length=200)


class _Paging(_Strict):
    page: str = ""
    offset: str = ""
    cursor: str = ""
    size: str = ""
    next: str = ""
    rows: str = ""


class _Endpoint(_Strict):
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
    path: str = Field(min_length=1, max_length=500, pattern=r"^/[^\s?#]*$")
    description: str = Field(default="", max_length=1_000)
    parameters: dict[str, _Parameter] = Field(default={}, max_length=60)
    body: str = Field(default="", max_length=1_500)
    response: str = Field(default="", max_length=1_500)
    read_only: bool = False
    idempotent_by_key: bool = False
    pagination: _Paging = _Paging()

    @field_validator("method", mode="before")
    @classmethod
    def _upper(cls, value: object) -> object:
        return value.upper() if isinstance(value, str) else value


class _Snippet(_Strict):
    title: str = Field(min_length=1, max_length=100)
    text: str = Field(min_length=1, max_length=4_000)


class _File(_Strict):
    title: str = Field(default="", max_length=200)
    endpoints: list[_Endpoint] = Field(default=[], max_length=2_000)
    snippets: list[_Snippet] = Field(default=[], max_length=500)


def read_curated(content: bytes, name: str) -> ApiCatalogue:
    """Catalogue of the API ``name`` from a curated file.

    Raises:
        ConfigurationError: it is no such file; names the entry.
    """
    if len(content) > MAX_CURATED_BYTES:
        raise ConfigurationError(f"The file is larger than {MAX_CURATED_BYTES} bytes.")
    try:
        # Aliases may nest a small file endlessly, and no catalogue needs them.
        text = content.decode("utf-8-sig")
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text)):
            raise ConfigurationError("The file has YAML aliases (*name); write the entries out.")
        file = _File.model_validate(yaml.safe_load(text) or {})
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise ConfigurationError(f"Line {line}: {error.problem or 'no YAML'}.") from None
    except (UnicodeDecodeError, yaml.YAMLError, RecursionError):
        raise ConfigurationError("The file is no YAML in UTF-8.") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ConfigurationError(f"{place or 'The file'}: {first['msg']}.") from None
    return ApiCatalogue(
        name=name,
        title=file.title or name,
        operations=tuple(_operation(name, each) for each in file.endpoints),
        snippets=tuple(Snippet(name, each.title, each.text) for each in file.snippets),
    )


def _operation(api: str, given: _Endpoint) -> Operation:
    parameters = [
        Parameter(
            name, each.place, each.required or each.place == "path", each.description, each.form
        )
        for name, each in given.parameters.items()
    ]
    named = {each.name for each in parameters if each.place == "path"}
    parameters += [
        Parameter(name, "path", required=True)
        for name in placeholders(given.path)
        if name not in named
    ]
    return Operation(
        api=api,
        method=given.method,
        path=given.path,
        description=" ".join(given.description.split()),
        parameters=tuple(parameters),
        body=given.body,
        response=given.response,
        read_only=given.read_only,
        idempotent_by_key=given.idempotent_by_key,
        paging=Paging(**given.pagination.model_dump()),
    )
