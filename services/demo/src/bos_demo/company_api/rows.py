"""Queries of the company's API: every value comes from the demo database."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import asyncpg

_PRODUCTS = """
SELECT p.sku, p.product_name AS name, c.category_name AS category, p.unit, p.list_price,
       p.reorder_level, s.supplier_name AS supplier, p.discontinued_on IS NULL AS on_sale
FROM products p
JOIN product_categories c USING (category_id) JOIN suppliers s USING (supplier_id)
"""
_STOCK = """
SELECT p.sku, p.product_name AS name, w.warehouse_name AS warehouse,
       l.quantity_on_hand AS quantity, p.reorder_level, l.last_counted_on
FROM stock_levels l JOIN products p USING (product_id) JOIN warehouses w USING (warehouse_id)
"""
_ORDERS = """
SELECT o.po_number AS number, s.supplier_name AS supplier, w.warehouse_name AS warehouse,
       o.order_date, o.expected_date, o.received_date, o.status, o.total_amount
FROM purchase_orders o JOIN suppliers s USING (supplier_id) JOIN warehouses w USING (warehouse_id)
"""
_TICKETS = """
SELECT t.ticket_id AS id, c.customer_name AS customer, p.sku, e.full_name AS assigned_to, t.topic,
       t.priority, t.status, t.opened_at, t.closed_at
FROM support_tickets t JOIN customers c USING (customer_id)
LEFT JOIN products p USING (product_id) JOIN employees e ON e.employee_id = t.assigned_to
"""


class CompanyRows:
    """Reads the company's tables, each query with its own limit.

    Args:
        pool: Connections whose search path holds the company's schema.
    """

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self._pool = pool

    async def products(
        self, search: str, category: str, limit: int, offset: int
    ) -> list[dict[str, Any]]:
        """Products by SKU; names hold ``search``, case-insensitive."""
        return await self._rows(
            _PRODUCTS + "WHERE position(lower($1) in lower(p.product_name)) > 0 "
            "AND ($2 = '' OR c.category_name = $2) ORDER BY p.sku LIMIT $3 OFFSET $4",
            search,
            category,
            limit,
            offset,
        )

    async def product(self, sku: str) -> dict[str, Any] | None:
        """One product with its stock in each warehouse."""
        found = await self._rows(_PRODUCTS + "WHERE p.sku = $1", sku)
        if not found:
            return None
        stock = await self._rows(
            "SELECT w.warehouse_name AS warehouse, l.quantity_on_hand AS quantity "
            "FROM stock_levels l JOIN products p USING (product_id) "
            "JOIN warehouses w USING (warehouse_id) WHERE p.sku = $1 ORDER BY 1",
            sku,
        )
        return {**found[0], "stock": stock}

    async def stock(
        self, warehouse: str, below: bool, limit: int, offset: int
    ) -> list[dict[str, Any]]:
        """Stock by SKU and warehouse; with ``below``, less than the reorder level alone."""
        return await self._rows(
            _STOCK + "WHERE ($1 = '' OR w.warehouse_name = $1) "
            "AND (NOT $2 OR (l.quantity_on_hand < p.reorder_level AND p.discontinued_on IS NULL)) "
            "ORDER BY p.sku, w.warehouse_name LIMIT $3 OFFSET $4",
            warehouse,
            below,
            limit,
            offset,
        )

    async def stock_of(self, skus: list[str]) -> list[dict[str, Any]]:
        """Stock of several products over all warehouses."""
        return await self._rows(
            "SELECT p.sku, p.product_name AS name, sum(l.quantity_on_hand) AS quantity "
            "FROM stock_levels l JOIN products p USING (product_id) WHERE p.sku = ANY($1) "
            "GROUP BY p.sku, p.product_name ORDER BY p.sku",
            skus,
        )

    async def orders(
        self, status: str, supplier: str, limit: int, offset: int
    ) -> tuple[list[dict[str, Any]], int]:
        """Purchase orders, the latest first, and how many there are."""
        where = "WHERE ($1 = '' OR o.status = $1) AND ($2 = '' OR s.supplier_name = $2) "
        rows = await self._rows(
            _ORDERS + where + "ORDER BY o.order_date DESC, o.po_number DESC LIMIT $3 OFFSET $4",
            status,
            supplier,
            limit,
            offset,
        )
        count = await self._rows(
            f"SELECT count(*) AS total FROM ({_ORDERS + where}) AS found",  # noqa: S608  constants
            status,
            supplier,
        )
        return rows, count[0]["total"]

    async def order(self, number: str) -> dict[str, Any] | None:
        """One purchase order with its lines."""
        found = await self._rows(_ORDERS + "WHERE o.po_number = $1", number)
        if not found:
            return None
        lines = await self._rows(
            "SELECT l.line_number AS line, p.sku, p.product_name AS name, l.quantity_ordered, "
            "l.quantity_received, l.unit_cost, l.line_amount FROM purchase_order_lines l "
            "JOIN purchase_orders o USING (purchase_order_id) JOIN products p USING (product_id) "
            "WHERE o.po_number = $1 ORDER BY l.line_number",
            number,
        )
        return {**found[0], "lines": lines}

    async def shipments(
        self, start: date, end: date, limit: int, offset: int
    ) -> list[dict[str, Any]]:
        """Purchase orders received from ``start`` up to, but not on, ``end``."""
        return await self._rows(
            "SELECT o.po_number AS order_number, s.supplier_name AS supplier, "
            "w.warehouse_name AS warehouse, o.expected_date, o.received_date, "
            "o.received_date - o.expected_date AS days_late FROM purchase_orders o "
            "JOIN suppliers s USING (supplier_id) JOIN warehouses w USING (warehouse_id) "
            "WHERE o.received_date >= $1 AND o.received_date < $2 "
            "ORDER BY o.received_date, o.po_number LIMIT $3 OFFSET $4",
            start,
            end,
            limit,
            offset,
        )

    async def tickets(
        self, status: str, priority: str, limit: int, offset: int
    ) -> list[dict[str, Any]]:
        """Support tickets, the latest first."""
        return await self._rows(
            _TICKETS + "WHERE ($1 = '' OR t.status = $1) AND ($2 = '' OR t.priority = $2) "
            "ORDER BY t.opened_at DESC, t.ticket_id DESC LIMIT $3 OFFSET $4",
            status,
            priority,
            limit,
            offset,
        )

    async def ticket(self, number: int) -> dict[str, Any] | None:
        """One support ticket."""
        found = await self._rows(_TICKETS + "WHERE t.ticket_id = $1", number)
        return found[0] if found else None

    async def has_customer(self, name: str) -> bool:
        """Whether there is a customer of this name."""
        return bool(await self._rows("SELECT 1 FROM customers WHERE customer_name = $1", name))

    async def last_ticket(self) -> int:
        """Highest number of a ticket."""
        return int((await self._rows("SELECT max(ticket_id) AS n FROM support_tickets"))[0]["n"])

    async def stock_value(self) -> list[dict[str, Any]]:
        """Value of the stock in each warehouse at standard cost, the highest first."""
        return await self._rows(
            "SELECT w.warehouse_name AS warehouse, sum(l.quantity_on_hand) AS units, "
            "sum(l.quantity_on_hand * p.unit_cost) AS stock_value FROM stock_levels l "
            "JOIN products p USING (product_id) JOIN warehouses w USING (warehouse_id) "
            "GROUP BY 1 ORDER BY stock_value DESC"
        )

    async def _rows(self, query: str, *arguments: Any) -> list[dict[str, Any]]:
        records = await self._pool.fetch(query, *arguments)
        return [{name: _plain(value) for name, value in record.items()} for record in records]


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, date | datetime):
        return value.isoformat()
    return value
