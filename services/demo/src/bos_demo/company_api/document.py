"""OpenAPI 3.1 document of the company's API."""

from __future__ import annotations

from typing import Any

_STATUS = ["received", "open", "cancelled"]
_PRIORITY = ["low", "normal", "high", "urgent"]
_TOPIC = ["delivery", "quality", "billing", "technical"]


def document() -> dict[str, Any]:
    """The document, as ``/openapi.json`` serves it."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Nilgiri Flow Works API",
            "version": "1",
            "description": "Live data of the company: products, stock, purchase orders, shipments "
            "and support tickets. Calls need a bearer token; POST /token makes one from e-mail and "
            "password, valid for an hour. Lists are paged. Errors say why in the field detail.",
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}],
        "tags": [
            {"name": "stock", "description": "Stock is counted per product and warehouse."},
            {
                "name": "orders",
                "description": "Orders are purchase orders placed with suppliers; a shipment is an "
                "order that a warehouse received, late after its expected date.",
            },
            {
                "name": "tickets",
                "description": "Tickets are requests of customers to the service desk. A new one "
                "needs an Idempotency-Key; the same key opens it once.",
            },
        ],
        "paths": _paths(),
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": _schemas(),
        },
    }


def _paths() -> dict[str, Any]:
    page = [_query("page", "integer", "Page, from 1"), _query("per_page", "integer", "At most 100")]
    window = [
        _query("startDateTime", "string", "First moment, such as 2026-06-01T00:00:00", True),
        _query("endDateTime", "string", "Moment after the last one", True),
    ]
    return {
        "/v1/products": {
            "get": _operation(
                "List products of the catalogue",
                "stock",
                _rows("Product"),
                [_query("search", "string", "Part of the name"), _query("category"), *page],
            )
        },
        "/v1/products/{sku}": {
            "get": _operation(
                "One product with its stock in each warehouse",
                "stock",
                _ref("Product"),
                [_path("sku", "Stock keeping unit")],
            )
        },
        "/v1/stock": {
            "get": {
                **_operation(
                    "List stock by product and warehouse",
                    "stock",
                    _items("Stock"),
                    [
                        _query("warehouse", "string", "Name of the warehouse"),
                        _query("below_reorder_level", "boolean", "Only what is to be reordered"),
                        _query("cursor", "string", "From next_cursor of the page before"),
                    ],
                )
            }
        },
        "/v1/stock/search": {
            "post": {
                **_operation("Add up the stock of several products", "stock", _rows("Stock")),
                "x-bos-read-only": True,
                "requestBody": _body({"skus": {"type": "array", "items": {"type": "string"}}}),
            }
        },
        "/v1/orders": {
            "get": _operation(
                "List purchase orders, the latest first",
                "orders",
                _items("Order"),
                [_query("status", _STATUS), _query("supplier", "string", "Its name"), *page],
            )
        },
        "/v1/orders/{number}": {
            "get": _operation(
                "One purchase order with its lines",
                "orders",
                _ref("Order"),
                [_path("number", "Number printed on the order, such as PO-02001")],
            )
        },
        "/v1/shipments": {
            "get": _operation(
                "List shipments received between two moments", "orders", _items("Shipment"), window
            )
        },
        "/v1/tickets": {
            "get": _operation(
                "List support tickets, the latest first",
                "tickets",
                _items("Ticket"),
                [
                    _query("status", ["open", "waiting", "closed"]),
                    _query("priority", _PRIORITY),
                    _query("offset", "integer"),
                    _query("limit", "integer", "At most 100"),
                ],
            ),
            "post": {
                **_operation("Open a support ticket of a customer", "tickets", _ref("Ticket")),
                "parameters": [
                    {"name": "Idempotency-Key", "in": "header", "required": True},
                ],
                "requestBody": _body(
                    {
                        "customer": {"type": "string"},
                        "topic": {"enum": _TOPIC},
                        "priority": {"enum": _PRIORITY},
                        "text": {"type": "string"},
                    },
                    required=["customer", "topic", "text"],
                ),
            },
        },
        "/v1/tickets/{id}": {
            "get": _operation(
                "One support ticket", "tickets", _ref("Ticket"), [_path("id", "Its number")]
            ),
            "patch": {
                **_operation(
                    "Change priority or status of a ticket that was opened through the API",
                    "tickets",
                    _ref("Ticket"),
                    [_path("id", "Its number")],
                ),
                "requestBody": _body(
                    {
                        "priority": {"enum": _PRIORITY},
                        "status": {"enum": ["open", "waiting", "closed"]},
                    }
                ),
            },
        },
        "/v1/reports/stock-value": {
            "get": _operation(
                "Report the value of the stock in each warehouse; takes a moment",
                "stock",
                {"type": "array", "items": {"type": "object"}},
            )
        },
    }


def _schemas() -> dict[str, Any]:
    text, number, whole = {"type": "string"}, {"type": "number"}, {"type": "integer"}
    line = {"sku": text, "quantity_ordered": whole, "line_amount": number}
    fields: dict[str, dict[str, Any]] = {
        "Product": {
            "sku": text,
            "name": text,
            "category": text,
            "list_price": number,
            "reorder_level": whole,
            "supplier": text,
            "on_sale": {"type": "boolean"},
        },
        "Stock": {"sku": text, "name": text, "warehouse": text, "quantity": whole},
        "Order": {
            "number": text,
            "supplier": text,
            "warehouse": text,
            "order_date": text,
            "expected_date": text,
            "received_date": {"type": ["string", "null"]},
            "status": {"enum": _STATUS},
            "total_amount": number,
            "lines": {"type": "array", "items": {"type": "object", "properties": line}},
        },
        "Shipment": {"order_number": text, "supplier": text, "days_late": whole},
        "Ticket": {
            "id": whole,
            "customer": text,
            "topic": text,
            "priority": text,
            "status": text,
            "opened_at": text,
        },
    }
    return {name: {"type": "object", "properties": each} for name, each in fields.items()}


def _operation(
    summary: str, tag: str, schema: dict[str, Any], parameters: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    return {
        "summary": summary,
        "tags": [tag],
        "parameters": parameters or [],
        "responses": {
            "200": {"description": summary, "content": {"application/json": {"schema": schema}}},
            "401": {"description": "The bearer token is missing or has expired"},
        },
    }


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _rows(name: str) -> dict[str, Any]:
    return {"type": "array", "items": _ref(name)}


def _items(name: str) -> dict[str, Any]:
    return {"type": "object", "properties": {"items": _rows(name)}}


def _query(
    name: str, kind: str | list[str] = "string", about: str = "", required: bool = False
) -> dict[str, Any]:
    schema = {"enum": kind} if isinstance(kind, list) else {"type": kind}
    return {
        "name": name,
        "in": "query",
        "required": required,
        "description": about,
        "schema": schema,
    }


def _path(name: str, about: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": about,
        "schema": {"type": "string"},
    }


def _body(properties: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": required or []}
    return {"required": True, "content": {"application/json": {"schema": schema}}}
