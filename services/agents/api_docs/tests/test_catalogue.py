"""Documents of any author: OpenAPI 3.0 and 3.1, curated files, hostile ones, reloading."""

import json
from pathlib import Path
from typing import Any

import pytest

from bos_api_docs.catalogue.curated import read_curated
from bos_api_docs.catalogue.index import CatalogueIndex
from bos_api_docs.catalogue.loading import Catalogues
from bos_api_docs.catalogue.model import ApiCatalogue, Paging, merged
from bos_api_docs.catalogue.openapi import MAX_DOCUMENT_BYTES, MAX_OPERATIONS, read_openapi
from bos_api_docs.settings import ApiSettings
from bos_chassis.telemetry import Telemetry
from bos_errors import ConfigurationError
from bos_http import HttpClient, HttpPolicy


def read(document: Any) -> ApiCatalogue:
    content = document if isinstance(document, str | bytes) else json.dumps(document)
    return read_openapi(content if isinstance(content, bytes) else content.encode(), "x")


def paths(version: str = "3.0.3", /, **items: Any) -> dict[str, Any]:
    named = {"/" + name.replace("__", "/"): item for name, item in items.items()}
    return {"openapi": version, "info": {"title": "T"}, "paths": named}


V30 = """
openapi: 3.0.3
info: {title: Shop, description: Sells things}
servers: [{url: /v2}]
paths:
  /items/{id}:
    parameters:
      - $ref: '#/components/parameters/Id'
    get:
      operationId: getItem
      summary: One item
      tags: [items]
      responses:
        '200':
          content:
            application/json:
              schema: {$ref: '#/components/schemas/Item'}
    put:
      deprecated: true
      requestBody:
        content:
          application/json:
            schema:
              allOf:
                - $ref: '#/components/schemas/Item'
                - type: object
                  properties: {note: {type: string, nullable: true}}
components:
  parameters:
    Id: {name: id, in: path, required: true, schema: {type: integer}, description: Its number}
  schemas:
    Item:
      type: object
      required: [sku]
      properties:
        sku: {type: string}
        kind: {enum: [a, b]}
        parts: {type: array, items: {$ref: '#/components/schemas/Item'}}
"""


def test_a_document_in_yaml_is_read_with_its_references() -> None:
    catalogue = read_openapi(V30.encode(), "shop", url="https://shop.example/docs/openapi.yaml")
    assert catalogue.title == "Shop"
    assert catalogue.servers == ("https://shop.example/v2",)
    get, put = catalogue.operations
    (parameter,) = get.parameters
    assert (parameter.name, parameter.place, parameter.required) == ("id", "path", True)
    assert (parameter.form, parameter.description) == ("integer", "Its number")
    assert get.response.startswith("{sku*: string, kind: a|b, parts: [{sku*: string, ")
    assert "…" in get.response  # the schema holds itself
    assert put.deprecated
    assert " & {note: string}" in put.body
    assert [snippet.text for snippet in catalogue.snippets] == ["Sells things"]


def test_forms_of_3_1_are_read() -> None:
    schema = {"type": ["string", "null"], "const": "x"}
    document = paths(
        "3.1.0",
        a={
            "get": {"parameters": [{"name": "q", "in": "query", "schema": schema}]},
            "post": {
                "x-bos-read-only": True,
                "x-bos-pagination": {"cursor": "after", "rows": "list"},
                "requestBody": {"content": {"application/json": {"schema": {"type": ["integer"]}}}},
            },
        },
    )
    get, post = read(document).operations
    assert get.parameters[0].form == "x"
    assert (post.body, post.read_only) == ("integer", True)
    assert post.paging == Paging(cursor="after", rows="list")
    assert post.reads
    assert not post.idempotent_by_key


def nested(depth: int) -> Any:
    value: Any = {"type": "string"}
    for _ in range(depth):
        value = {"properties": {"a": value}}
    return value


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ("", "must be an object"),
        ({"swagger": "2.0"}, "no OpenAPI 3"),
        (b"\xff\xfe\x00", "neither JSON nor YAML"),
        ("!!python/object/apply:os.system [true]", "neither JSON nor YAML"),
        ('{"a":' * 30_000, "neither JSON nor YAML"),
        (b" " * (MAX_DOCUMENT_BYTES + 1), "larger than"),
        (paths(a={"get": {"x": nested(80)}}), "nested more than"),
        ("openapi: 3.0.0\npaths: &a {x: *a}", "contains itself"),
        (
            "openapi: 3.0.0\na: &a [x,x,x,x,x,x,x,x,x,x]\n"
            + "\n".join(
                f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 10)}]"
                for n in range(8)
            ),
            "more than",
        ),
    ],
    ids=lambda value: None if isinstance(value, str) and len(value) < 40 else "document",
)
def test_a_hostile_document_is_refused_with_its_problem(document: Any, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        read(document)


def test_references_lead_nowhere_else() -> None:
    """Other documents are not read, and circles end."""
    refs = ["https://evil.example/x.json", "other.yaml#/a", "#/nope", "#/components/schemas/L"]
    body = [
        {"content": {"application/json": {"schema": {"$ref": reference}}}} for reference in refs
    ]
    document = paths(**{f"p{n}": {"post": {"requestBody": each}} for n, each in enumerate(body)})
    document["components"] = {"schemas": {"L": {"$ref": "#/components/schemas/M"}}}
    document["components"]["schemas"]["M"] = {"$ref": "#/components/schemas/L"}
    catalogue = read(document)
    assert [each.body for each in catalogue.operations] == ["any"] * 4
    assert catalogue.notes == (
        "2 references to other documents are not followed",
        "2 references lead nowhere or in a circle",
    )


def test_bad_entries_are_left_out_and_the_rest_is_kept() -> None:
    document = paths(
        good={"get": {"summary": "Fine", "parameters": [None, 7, {"name": 1, "in": "query"}]}},
        bad={"get": "no object", "trace": {}, "post": None},
    )
    document["paths"]["no-slash"] = {"get": {}}
    document["tags"] = [None, {"name": "a"}, {"description": "b" * 9_000}]
    document["servers"] = [None, {"url": 1}, {"url": "https://{x}.example"}]
    catalogue = read(document)
    assert [(each.method, each.path) for each in catalogue.operations] == [("GET", "/good")]
    assert catalogue.operations[0].parameters == ()
    assert catalogue.servers == ()
    assert len(catalogue.snippets[0].text) == 4_000


def test_wide_documents_are_bounded() -> None:
    document = paths(**{f"p{n}": {"get": {}, "post": {}} for n in range(MAX_OPERATIONS)})
    catalogue = read(document)
    assert len(catalogue.operations) == MAX_OPERATIONS
    assert "left out" in catalogue.notes[0]
    wide = {"properties": {f"f{n}": {"type": "string"} for n in range(5_000)}}
    body = {"content": {"application/json": {"schema": wide}}}
    (operation,) = read(paths(a={"post": {"requestBody": body}})).operations
    assert len(operation.body) < 1_600


def test_a_curated_file_completes_a_document() -> None:
    curated = read_curated(
        b"""
        endpoints:
          - {method: put, path: "/items/:id", description: Replaces it, idempotent_by_key: true}
          - {method: POST, path: /find, read_only: true, pagination: {rows: found}}
        snippets: [{title: Limits, text: A hundred calls a minute.}]
        """,
        "shop",
    )
    catalogue = merged(read_openapi(V30.encode(), "shop"), curated)
    put = catalogue.find("PUT", "/items/7")
    assert put.path == "/items/{id}"
    assert put.idempotent_by_key
    assert put.body  # the document's
    find = catalogue.find("POST", "/find")
    assert find.reads
    assert catalogue.snippets[0].title == "Limits"
    assert catalogue.find("DELETE", "/items/7") is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("endpoints: [{method: BREW, path: /x}]", "endpoints.0.method"),
        ("endpoints: [{method: GET, path: /x, readonly: true}]", "endpoints.0.readonly"),
        ("a: &a [*a]", "aliases"),
    ],
)
def test_a_wrong_curated_file_names_the_entry(text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        read_curated(text.encode(), "x")


def test_ranking_finds_endpoints_by_path_words_and_camel_case() -> None:
    document = paths(
        customerInvoices={"get": {"summary": "Bills"}},
        stock_levels={"get": {"description": "Units on the shelf"}},
        **{"a__b": {"get": {}}},
    )
    index = CatalogueIndex([read(document)])

    def best(query: str) -> str:
        return index.search(query, operations=1, snippets=0).operations[0].path

    assert best("invoices of a customer") == "/customerInvoices"
    assert best("stock level") == "/stock_levels"
    assert best("which units are on a shelf") == "/stock_levels"
    nothing = index.search("zzz", operations=2, snippets=2)
    assert (len(nothing.operations), nothing.snippets) == (2, ())


async def test_a_changed_file_is_reloaded_and_a_broken_one_ignored(tmp_path: Path) -> None:
    file, telemetry = tmp_path / "a.json", Telemetry.for_tests("api_docs")
    file.write_text(json.dumps(paths(one={"get": {}})))
    async with HttpClient(HttpPolicy(), telemetry) as http:
        catalogues = Catalogues({"a": ApiSettings(openapi=str(file))}, http, telemetry)
        await catalogues.load()
        first = catalogues.current
        await catalogues.load()
        assert catalogues.current is first  # nothing changed
        file.write_text(json.dumps(paths(two={"get": {}})))
        await catalogues.load()
        assert [each.path for each in catalogues.current.index.operations] == ["/two"]
        file.write_text("broken")
        await catalogues.load()
        await catalogues.load()
        assert [each.path for each in catalogues.current.index.operations] == ["/two"]
        assert "must be an object" in catalogues.current.problems["a"]
        file.write_text(json.dumps(paths(three={"get": {}})))
        await catalogues.load()
        assert catalogues.current.problems == {}
    said = [each["event"] for each in telemetry.logs]
    assert said.count("api catalogue not read") == 1
    assert said.count("api catalogue read") == 3
