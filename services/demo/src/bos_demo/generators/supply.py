"""Purchase orders and stock; goods arrive roughly ahead of the invoices' demand."""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import date, timedelta
from typing import NamedTuple

from bos_demo.generators.money import paise, round_to, rupees
from bos_demo.generators.world import World, working_day
from bos_demo.periods import add_months
from bos_demo.rows import (
    CompanyRows,
    Product,
    PurchaseOrder,
    PurchaseOrderLine,
    StockLevel,
    StockMovement,
    Supplier,
)

MONTHS_PER_ORDER = 2
DOMESTIC_HUBS = (1, 2, 3, 4)
HUB_WEIGHTS = (40, 22, 26, 12)
Place = tuple[int, int]  # warehouse and product


class Move(NamedTuple):
    """A stock movement without a number yet."""

    day: date
    kind: str
    quantity: int
    invoice_line_id: int | None = None
    purchase_order_line_id: int | None = None


def add_supply(rows: CompanyRows, world: World) -> None:
    """Add purchase orders, stock movements and stock levels; sales must exist already."""
    chance = world.chance("supply")
    hubs = {p.product_id: _hubs(chance) for p in rows.products}
    moves: dict[Place, list[Move]] = {
        (warehouse, product): [] for product, pair in hubs.items() for warehouse in pair
    }
    demand = _add_issues(rows, chance, hubs, moves)
    _set_reorder_levels(rows, demand)
    _add_orders(rows, world, chance, hubs, demand, moves)
    _add_adjustments(world, chance, moves)
    _number_movements(rows, world, chance, moves)


def _hubs(chance: random.Random) -> tuple[int, int]:
    first = chance.choices(DOMESTIC_HUBS, HUB_WEIGHTS)[0]
    others = [w for w in (1, 2, 3, 4, 5) if w != first]
    return first, chance.choice(others)


def _add_issues(
    rows: CompanyRows,
    chance: random.Random,
    hubs: dict[int, tuple[int, int]],
    moves: dict[Place, list[Move]],
) -> dict[tuple[Place, date], int]:
    """Book sold goods out and returned goods in; return the demand per place and month."""
    demand: dict[tuple[Place, date], int] = defaultdict(int)
    issued_from: dict[int, Place] = {}
    for line in rows.invoice_lines:
        day = rows.invoices[line.invoice_id - 1].invoice_date
        first, second = hubs[line.product_id]
        place = (first if chance.random() < 0.65 else second, line.product_id)
        issued_from[line.invoice_line_id] = place
        moves[place].append(Move(day, "issue", -line.quantity, line.invoice_line_id))
        demand[place, add_months(day, 0)] += line.quantity
    for back in rows.sales_returns:
        if back.reason in ("wrong item", "no longer needed"):  # the rest is scrapped
            place = issued_from[back.invoice_line_id]
            moves[place].append(
                Move(back.return_date, "return", back.quantity, back.invoice_line_id)
            )
    return demand


def _set_reorder_levels(rows: CompanyRows, demand: dict[tuple[Place, date], int]) -> None:
    sold: dict[int, int] = defaultdict(int)
    months: dict[int, set[date]] = defaultdict(set)
    for (place, month), quantity in demand.items():
        sold[place[1]] += quantity
        months[place[1]].add(month)
    for index, product in enumerate(rows.products):
        monthly = sold[product.product_id] / max(1, len(months[product.product_id])) / 2
        rows.products[index] = product._replace(reorder_level=round_to(monthly * 0.4, 1))


def _add_orders(
    rows: CompanyRows,
    world: World,
    chance: random.Random,
    hubs: dict[int, tuple[int, int]],
    demand: dict[tuple[Place, date], int],
    moves: dict[Place, list[Move]],
) -> None:
    buyers = [e.employee_id for e in rows.employees if "Buyer" in e.job_title]
    by_source: dict[tuple[int, int], list[Product]] = defaultdict(list)
    for product in rows.products:
        for warehouse in hubs[product.product_id]:
            by_source[product.supplier_id, warehouse].append(product)
    planned = []
    for (supplier_id, warehouse), products in sorted(by_source.items()):
        supplier = rows.suppliers[supplier_id - 1]
        slack = chance.gauss(-2, 2) + (4.2 - float(supplier.rating)) * 2.5  # average days late
        offset = chance.randint(0, MONTHS_PER_ORDER - 1)
        month = add_months(world.start, offset)
        while month <= add_months(world.today, 2):
            arrival = month - timedelta(days=chance.randint(2, 14))
            ordered = working_day(arrival - timedelta(days=supplier.lead_time_days))
            if world.start <= ordered <= world.today:
                late = round(chance.gauss(slack, 4))
                planned.append((ordered, supplier, warehouse, products, month, late))
            month = add_months(month, MONTHS_PER_ORDER)
    planned.sort(key=lambda order: (order[0], order[1].supplier_id, order[2]))
    for ordered, supplier, warehouse, products, month, late in planned:
        wanted = _wanted(world, chance, warehouse, products, month, demand)
        if wanted:
            buyer = chance.choice(buyers)
            order = _Order(ordered, supplier, warehouse, buyer, late)
            _add_order(rows, world, chance, order, wanted, moves)


class _Order(NamedTuple):
    day: date
    supplier: Supplier
    warehouse_id: int
    buyer_id: int
    days_late: int


def _wanted(
    world: World,
    chance: random.Random,
    warehouse: int,
    products: list[Product],
    month: date,
    demand: dict[tuple[Place, date], int],
) -> list[tuple[Product, int]]:
    """Return quantities to order from `month` on; last year's demand where none is known."""
    this_month = add_months(world.today, 0)
    wanted = []
    for product in products:
        place = (warehouse, product.product_id)
        need = 0
        for n in range(MONTHS_PER_ORDER):
            wished = add_months(month, n)
            known = wished if wished < this_month else add_months(wished, -12)
            need += demand.get((place, known), 0)
        quantity = round(need * chance.uniform(0.85, 1.2))
        gone = product.discontinued_on is not None and product.discontinued_on < month
        if quantity and not gone:
            wanted.append((product, quantity if quantity < 40 else round_to(quantity, 10)))
    return wanted


def _add_order(
    rows: CompanyRows,
    world: World,
    chance: random.Random,
    order: _Order,
    wanted: list[tuple[Product, int]],
    moves: dict[Place, list[Move]],
) -> None:
    order_id = len(rows.purchase_orders) + 1
    expected = working_day(order.day + timedelta(days=order.supplier.lead_time_days))
    arrived = working_day(max(order.day, expected + timedelta(days=order.days_late)))
    cancelled = chance.random() < 0.015
    received = not cancelled and arrived <= world.today
    total = 0
    for line_number, (product, quantity) in enumerate(wanted, 1):
        line_id = len(rows.purchase_order_lines) + 1
        age = (world.today - order.day).days / 365
        cost = round(paise(product.unit_cost) * 0.968**age * chance.uniform(0.98, 1.03))
        short = received and chance.random() < 0.04
        arrives = (max(1, round(quantity * 0.9)) if short else quantity) if received else 0
        rows.purchase_order_lines.append(
            PurchaseOrderLine(
                purchase_order_line_id=line_id,
                purchase_order_id=order_id,
                line_number=line_number,
                product_id=product.product_id,
                quantity_ordered=quantity,
                quantity_received=arrives,
                unit_cost=rupees(cost),
                line_amount=rupees(cost * quantity),
            )
        )
        total += cost * quantity
        if received:
            move = Move(arrived, "receipt", arrives, purchase_order_line_id=line_id)
            moves[order.warehouse_id, product.product_id].append(move)
    rows.purchase_orders.append(
        PurchaseOrder(
            purchase_order_id=order_id,
            po_number=f"PO-{order.day.year}-{order_id:05d}",
            supplier_id=order.supplier.supplier_id,
            warehouse_id=order.warehouse_id,
            buyer_id=order.buyer_id,
            order_date=order.day,
            expected_date=expected,
            received_date=arrived if received else None,
            status="cancelled" if cancelled else "received" if received else "open",
            total_amount=rupees(total),
        )
    )


def _add_adjustments(world: World, chance: random.Random, moves: dict[Place, list[Move]]) -> None:
    span = (world.today - world.start).days
    for changes in moves.values():
        for _ in range(chance.randint(0, 3)):
            day = working_day(world.start + timedelta(days=chance.randint(30, span - 30)))
            quantity = chance.choice((-3, -2, -1, -1, 1, 2))
            changes.append(Move(day, "adjustment", quantity))


def _number_movements(
    rows: CompanyRows, world: World, chance: random.Random, moves: dict[Place, list[Move]]
) -> None:
    """Add opening stock so that no place runs below zero, then number all movements by day."""
    everything: list[tuple[date, Place, Move]] = []
    for place, changes in sorted(moves.items()):
        product = rows.products[place[1] - 1]
        # Within a day receipts come before issues.
        changes.sort(key=lambda move: (move.day, -move.quantity))
        level = lowest = 0
        for move in changes:
            level += move.quantity
            lowest = min(lowest, level)
        opening = -lowest + round(product.reorder_level * chance.uniform(0.0, 2.2))
        everything.append((world.start, place, Move(world.start, "opening", opening)))
        everything += [(move.day, place, move) for move in changes]
        counted = world.today - timedelta(days=chance.randint(3, 90))
        rows.stock_levels.append(StockLevel(*place, opening + level, counted))
    everything.sort(key=lambda entry: (entry[0], entry[1], -entry[2].quantity))
    for number, (day, (warehouse, product_id), move) in enumerate(everything, 1):
        rows.stock_movements.append(
            StockMovement(
                number,
                warehouse,
                product_id,
                day,
                move.kind,
                move.quantity,
                move.invoice_line_id,
                move.purchase_order_line_id,
            )
        )
