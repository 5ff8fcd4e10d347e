"""Row types: one named tuple per table of `schema.sql`, fields in column order."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import date, datetime
from decimal import Decimal
from typing import Any, NamedTuple


class Region(NamedTuple):
    """A row of `regions`."""

    region_id: int
    region_name: str
    market: str


class Department(NamedTuple):
    """A row of `departments`."""

    department_id: int
    department_name: str
    cost_centre: str
    annual_budget: Decimal


class Employee(NamedTuple):
    """A row of `employees`."""

    employee_id: int
    full_name: str
    email: str
    department_id: int
    region_id: int
    manager_id: int | None
    job_title: str
    hired_on: date
    left_on: date | None
    monthly_salary: Decimal


class ProductCategory(NamedTuple):
    """A row of `product_categories`."""

    category_id: int
    category_name: str
    parent_category_id: int | None


class Supplier(NamedTuple):
    """A row of `suppliers`."""

    supplier_id: int
    supplier_name: str
    city: str
    country: str
    contact_email: str
    rating: Decimal
    lead_time_days: int
    payment_terms_days: int
    status: str


class Product(NamedTuple):
    """A row of `products`."""

    product_id: int
    sku: str
    product_name: str
    category_id: int
    supplier_id: int
    unit: str
    list_price: Decimal
    unit_cost: Decimal
    reorder_level: int
    launched_on: date
    discontinued_on: date | None


class Customer(NamedTuple):
    """A row of `customers`."""

    customer_id: int
    customer_name: str
    segment: str
    region_id: int
    city: str
    account_manager_id: int
    credit_limit: Decimal
    payment_terms_days: int
    customer_since: date
    status: str


class Invoice(NamedTuple):
    """A row of `invoices`."""

    invoice_id: int
    invoice_number: str
    customer_id: int
    invoice_date: date
    due_date: date
    net_amount: Decimal
    tax_amount: Decimal
    total_amount: Decimal
    status: str


class InvoiceLine(NamedTuple):
    """A row of `invoice_lines`."""

    invoice_line_id: int
    invoice_id: int
    line_number: int
    product_id: int
    quantity: int
    unit_price: Decimal
    discount_percent: Decimal
    line_amount: Decimal


class Payment(NamedTuple):
    """A row of `payments`."""

    payment_id: int
    invoice_id: int
    payment_date: date
    amount: Decimal
    method: str


class SalesReturn(NamedTuple):
    """A row of `sales_returns`."""

    return_id: int
    invoice_line_id: int
    return_date: date
    quantity: int
    credit_amount: Decimal
    reason: str


class Warehouse(NamedTuple):
    """A row of `warehouses`."""

    warehouse_id: int
    warehouse_name: str
    city: str
    region_id: int
    floor_area_sqm: int


class PurchaseOrder(NamedTuple):
    """A row of `purchase_orders`."""

    purchase_order_id: int
    po_number: str
    supplier_id: int
    warehouse_id: int
    buyer_id: int
    order_date: date
    expected_date: date
    received_date: date | None
    status: str
    total_amount: Decimal


class PurchaseOrderLine(NamedTuple):
    """A row of `purchase_order_lines`."""

    purchase_order_line_id: int
    purchase_order_id: int
    line_number: int
    product_id: int
    quantity_ordered: int
    quantity_received: int
    unit_cost: Decimal
    line_amount: Decimal


class StockLevel(NamedTuple):
    """A row of `stock_levels`."""

    warehouse_id: int
    product_id: int
    quantity_on_hand: int
    last_counted_on: date


class StockMovement(NamedTuple):
    """A row of `stock_movements`."""

    stock_movement_id: int
    warehouse_id: int
    product_id: int
    movement_date: date
    movement_type: str
    quantity: int
    invoice_line_id: int | None
    purchase_order_line_id: int | None


class SupportTicket(NamedTuple):
    """A row of `support_tickets`."""

    ticket_id: int
    customer_id: int
    product_id: int | None
    assigned_to: int
    topic: str
    priority: str
    status: str
    opened_at: datetime
    closed_at: datetime | None
    satisfaction: int | None


class SalesTarget(NamedTuple):
    """A row of `sales_targets`."""

    region_id: int
    quarter_start: date
    target_amount: Decimal


class DictionaryEntry(NamedTuple):
    """A row of `data_dictionary`."""

    table_name: str
    column_name: str
    description: str


@dataclass
class CompanyRows:
    """Generated rows of the company: one list per table, parents first."""

    regions: list[Region] = field(default_factory=list)
    departments: list[Department] = field(default_factory=list)
    employees: list[Employee] = field(default_factory=list)
    product_categories: list[ProductCategory] = field(default_factory=list)
    suppliers: list[Supplier] = field(default_factory=list)
    products: list[Product] = field(default_factory=list)
    customers: list[Customer] = field(default_factory=list)
    invoices: list[Invoice] = field(default_factory=list)
    invoice_lines: list[InvoiceLine] = field(default_factory=list)
    payments: list[Payment] = field(default_factory=list)
    sales_returns: list[SalesReturn] = field(default_factory=list)
    warehouses: list[Warehouse] = field(default_factory=list)
    purchase_orders: list[PurchaseOrder] = field(default_factory=list)
    purchase_order_lines: list[PurchaseOrderLine] = field(default_factory=list)
    stock_levels: list[StockLevel] = field(default_factory=list)
    stock_movements: list[StockMovement] = field(default_factory=list)
    support_tickets: list[SupportTicket] = field(default_factory=list)
    sales_targets: list[SalesTarget] = field(default_factory=list)
    data_dictionary: list[DictionaryEntry] = field(default_factory=list)

    def tables(self) -> dict[str, list[tuple[Any, ...]]]:
        """Return rows by table name; a table comes after the tables it refers to."""
        return {table.name: getattr(self, table.name) for table in fields(self)}
