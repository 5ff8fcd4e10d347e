"""Customers, invoices, payments and returns."""

from __future__ import annotations

import itertools
import random
from bisect import bisect_left
from datetime import date, timedelta
from decimal import Decimal
from typing import NamedTuple

from bos_demo.generators.money import paise, round_to, rupees
from bos_demo.generators.names import (
    CITIES,
    CUSTOMER_TRADES,
    DOMESTIC_PREFIXES,
    EXPORT_PREFIXES,
    REGIONS,
)
from bos_demo.generators.world import World, working_day
from bos_demo.periods import add_months, quarter_start
from bos_demo.rows import (
    CompanyRows,
    Customer,
    Invoice,
    InvoiceLine,
    Payment,
    Product,
    SalesReturn,
    SalesTarget,
)

CUSTOMERS = 420
INVOICES_PER_WORKING_DAY = 6.4
YEARLY_GROWTH = 0.07
GST_PERCENT = 18
# The fiscal year ends in March; the monsoon stops building sites in July and August.
SEASON = (0.97, 1.02, 1.38, 0.88, 0.95, 0.96, 0.80, 0.82, 0.98, 1.10, 1.06, 1.08)
REGION_WEIGHTS = (32, 20, 22, 9, 6, 4, 3, 4)
RETURN_REASONS = ("damaged in transit", "wrong item", "defective", "no longer needed")
LAPSED_RANKS = (6, 23, 71, 140)  # two of them used to matter


class Buyer(NamedTuple):
    """Behaviour of a customer, from which invoices are drawn."""

    customer: Customer
    size: float  # share of orders, the largest customer is 1.0
    days_late: float  # average days of payment after the due date
    last_day: date
    favourites: list[int]  # indexes of products


def add_sales(rows: CompanyRows, world: World) -> None:
    """Add customers, invoices with lines, payments, returns and the targets of the regions."""
    buyers = _add_customers(rows, world)
    _add_invoices(rows, world, buyers)
    _add_payments(rows, world, {b.customer.customer_id: b for b in buyers})
    _add_returns(rows, world)
    _add_targets(rows, world)


def _add_customers(rows: CompanyRows, world: World) -> list[Buyer]:
    chance = world.chance("customers")
    managers = [
        e.employee_id
        for e in rows.employees
        if "Account Manager" in e.job_title and e.left_on is None
    ]
    names = _CustomerNames(chance)
    span = (world.today - world.start).days
    buyers = []
    ranks = list(range(1, CUSTOMERS + 1))
    chance.shuffle(ranks)
    for number, rank in enumerate(ranks, 1):
        region_id = chance.choices(range(1, len(REGIONS) + 1), REGION_WEIGHTS)[0]
        segment = chance.choice(tuple(CUSTOMER_TRADES))
        region = REGIONS[region_id - 1][0]
        lapsed = rank in LAPSED_RANKS
        since = world.start - timedelta(days=chance.randint(30, 3000))
        if rank > 40 and chance.random() < 0.25:
            since = world.start + timedelta(days=int(span * chance.uniform(0.02, 0.95)))
        size = rank**-0.85
        customer = Customer(
            customer_id=number,
            customer_name=names.new(region, segment),
            segment=segment,
            region_id=region_id,
            city=chance.choice(CITIES[region]),
            account_manager_id=chance.choice(managers),
            credit_limit=rupees(round_to(500_000 + size * 60_000_000, 100_000) * 100),
            payment_terms_days=chance.choice((30, 30, 45, 60)),
            customer_since=since,
            status="lapsed" if lapsed else "active",
        )
        last = world.today - timedelta(days=chance.randint(210, 330)) if lapsed else world.today
        late = max(-12.0, chance.gauss(2, 9)) + (45.0 if chance.random() < 0.06 else 0.0)
        favourites = chance.sample(range(len(rows.products)), 28)
        rows.customers.append(customer)
        buyers.append(Buyer(customer, size, late, last, favourites))
    return buyers


class _CustomerNames:
    """Generates unique names."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._taken: set[str] = set()

    def new(self, region: str, segment: str) -> str:
        abroad = region in EXPORT_PREFIXES
        prefixes = EXPORT_PREFIXES.get(region, DOMESTIC_PREFIXES)
        while True:
            prefix = self._chance.choice(prefixes)
            name = f"{prefix} {self._chance.choice(CUSTOMER_TRADES[segment])}"
            if name in self._taken:
                suffixes = ("LLC", "Group", "Co") if abroad else ("Ltd", "Pvt Ltd", "Industries")
                name = f"{name} {self._chance.choice(suffixes)}"
            if name not in self._taken:
                self._taken.add(name)
                return name


def _add_invoices(rows: CompanyRows, world: World, buyers: list[Buyer]) -> None:
    chance = world.chance("invoices")
    cumulative = list(itertools.accumulate(b.size**0.7 for b in buyers))
    domestic = {n for n, (_, market) in enumerate(REGIONS, 1) if market == "domestic"}
    for day in world.days():
        if day.weekday() == 6:
            continue
        growth = (1 + YEARLY_GROWTH) ** ((day - world.start).days / 365)
        expected = INVOICES_PER_WORKING_DAY * SEASON[day.month - 1] * growth
        if day.weekday() == 5:
            expected *= 0.5
        for _ in range(int(expected) + (chance.random() < expected % 1)):
            buyer = buyers[bisect_left(cumulative, chance.random() * cumulative[-1])]
            if buyer.customer.customer_since <= day <= buyer.last_day:
                _add_invoice(rows, world, chance, buyer, day, buyer.customer.region_id in domestic)


def _add_invoice(
    rows: CompanyRows,
    world: World,
    chance: random.Random,
    buyer: Buyer,
    day: date,
    taxed: bool,
) -> None:
    invoice_id = len(rows.invoices) + 1
    net = 0
    count = chance.choices((1, 2, 3, 4, 5, 6), (18, 28, 24, 15, 9, 6))[0]
    pool = [p for i in buyer.favourites if _on_sale(p := rows.products[i], day)]
    for line_number, product in enumerate(chance.sample(pool, count), 1):
        line = _invoice_line(rows, world, chance, buyer, day, product, line_number)
        rows.invoice_lines.append(line)
        net += paise(line.line_amount)
    tax = round(net * GST_PERCENT / 100) if taxed else 0
    fiscal = day.year if day.month >= 4 else day.year - 1
    rows.invoices.append(
        Invoice(
            invoice_id=invoice_id,
            invoice_number=f"NFW/{fiscal % 100}-{(fiscal + 1) % 100}/{invoice_id:05d}",
            customer_id=buyer.customer.customer_id,
            invoice_date=day,
            due_date=day + timedelta(days=buyer.customer.payment_terms_days),
            net_amount=rupees(net),
            tax_amount=rupees(tax),
            total_amount=rupees(net + tax),
            status="open",
        )
    )


def _on_sale(product: Product, day: date) -> bool:
    return product.launched_on <= day and (
        product.discontinued_on is None or day <= product.discontinued_on
    )


def _invoice_line(
    rows: CompanyRows,
    world: World,
    chance: random.Random,
    buyer: Buyer,
    day: date,
    product: Product,
    line_number: int,
) -> InvoiceLine:
    # Prices rose a little every year; the list price is today's.
    age = (world.today - day).days / 365
    price = round(paise(product.list_price) * 0.965**age / 100) * 100 or 100
    discount = chance.choices((0, 2, 5, 8, 12), (40, 22, 20, 12, 6))[0]
    # An order line is worth some Rs. 50,000, more at a large customer, for every product.
    worth = chance.lognormvariate(0.0, 0.75) * 5_000_000 * (0.45 + 2.6 * buyer.size**0.5)
    quantity = max(1, round(worth / price))
    if quantity > 20:
        quantity = round_to(quantity, 5)
    amount = round(quantity * price * (100 - discount) / 100)
    return InvoiceLine(
        invoice_line_id=len(rows.invoice_lines) + 1,
        invoice_id=len(rows.invoices) + 1,
        line_number=line_number,
        product_id=product.product_id,
        quantity=quantity,
        unit_price=rupees(price),
        discount_percent=Decimal(discount).quantize(Decimal("0.01")),
        line_amount=rupees(amount),
    )


def _add_payments(rows: CompanyRows, world: World, buyers: dict[int, Buyer]) -> None:
    chance = world.chance("payments")
    export = {n for n, (_, market) in enumerate(REGIONS, 1) if market == "export"}
    for index, invoice in enumerate(rows.invoices):
        buyer = buyers[invoice.customer_id]
        method = chance.choices(("bank transfer", "cheque", "UPI"), (78, 15, 7))[0]
        if buyer.customer.region_id in export and chance.random() < 0.6:
            method = "letter of credit"
        total = paise(invoice.total_amount)
        first = total if chance.random() > 0.1 else round(total * chance.choice((0.3, 0.5, 0.7)))
        never = chance.random() < 0.008
        late = round(chance.gauss(buyer.days_late, 6))
        day = working_day(max(invoice.invoice_date, invoice.due_date + timedelta(days=late)))
        gap = chance.randint(12, 60)
        paid = 0
        for part, when in ((first, day), (total - first, working_day(day + timedelta(days=gap)))):
            if part and not never and when <= world.today:
                paid += part
                rows.payments.append(
                    Payment(len(rows.payments) + 1, invoice.invoice_id, when, rupees(part), method)
                )
        status = "paid" if paid == total else "partly_paid" if paid else "open"
        rows.invoices[index] = invoice._replace(status=status)


def _add_returns(rows: CompanyRows, world: World) -> None:
    chance = world.chance("returns")
    # Some products come back more often than others.
    trouble = {p.product_id for p in chance.sample(rows.products, 8)}
    for line in rows.invoice_lines:
        likely = 0.075 if line.product_id in trouble else 0.014
        if chance.random() >= likely:
            continue
        invoice = rows.invoices[line.invoice_id - 1]
        day = working_day(invoice.invoice_date + timedelta(days=chance.randint(4, 45)))
        quantity = max(1, round(line.quantity * chance.choice((0.1, 0.25, 0.5, 1.0))))
        weights = (20, 15, 55, 10) if line.product_id in trouble else (35, 30, 20, 15)
        reason = chance.choices(RETURN_REASONS, weights)[0]
        if day <= world.today:
            credit = round(paise(line.line_amount) * quantity / line.quantity)
            number = len(rows.sales_returns) + 1
            rows.sales_returns.append(
                SalesReturn(number, line.invoice_line_id, day, quantity, rupees(credit), reason)
            )


def _add_targets(rows: CompanyRows, world: World) -> None:
    """Set sales targets near actual sales, missed about as often as met; also for this quarter."""
    chance = world.chance("targets")
    sold: dict[tuple[int, date], int] = {}
    regions = {c.customer_id: c.region_id for c in rows.customers}
    for invoice in rows.invoices:
        key = (regions[invoice.customer_id], quarter_start(invoice.invoice_date))
        sold[key] = sold.get(key, 0) + paise(invoice.net_amount)
    current = quarter_start(world.today)
    quarter = quarter_start(world.start)
    while quarter <= current:
        for region_id in range(1, len(REGIONS) + 1):
            basis_quarter = quarter if quarter < current else add_months(quarter, -12)
            basis = sold.get((region_id, basis_quarter), 0) // 100
            target = round_to(basis * chance.uniform(0.88, 1.15), 100_000)
            rows.sales_targets.append(SalesTarget(region_id, quarter, rupees(target * 100)))
        quarter = add_months(quarter, 3)
