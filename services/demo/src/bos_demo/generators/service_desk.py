"""Support tickets."""

from __future__ import annotations

import random
from datetime import datetime, time, timedelta

from bos_demo.generators.world import World, working_day
from bos_demo.rows import CompanyRows, Invoice, SupportTicket

SHARE_OF_INVOICES = 0.42
TOPICS = ("delivery", "quality", "billing", "technical")
PRIORITIES = ("low", "normal", "high", "urgent")
HOURS_TO_CLOSE = {"low": 140.0, "normal": 76.0, "high": 34.0, "urgent": 13.0}


def add_tickets(rows: CompanyRows, world: World) -> None:
    """Add tickets that customers opened some days after an invoice, in order of opening."""
    chance = world.chance("tickets")
    agents = [
        e.employee_id
        for e in rows.employees
        if e.job_title in ("Service Agent", "Service Engineer") and e.left_on is None
    ]
    products: dict[int, list[int]] = {}
    for line in rows.invoice_lines:
        products.setdefault(line.invoice_id, []).append(line.product_id)
    opened = []
    for invoice in rows.invoices:
        if chance.random() < SHARE_OF_INVOICES:
            at = _opening(invoice, chance)
            if at.date() <= world.today:
                opened.append(
                    (at, invoice.customer_id, chance.choice(products[invoice.invoice_id]))
                )
    opened.sort()
    for number, (at, customer_id, product_id) in enumerate(opened, 1):
        rows.support_tickets.append(
            _ticket(number, at, customer_id, product_id, chance, world, agents)
        )


def _opening(invoice: Invoice, chance: random.Random) -> datetime:
    day = working_day(invoice.invoice_date + timedelta(days=chance.randint(1, 30)))
    return datetime.combine(day, time(9)) + timedelta(minutes=chance.randint(0, 539))


def _ticket(
    number: int,
    opened_at: datetime,
    customer_id: int,
    product_id: int,
    chance: random.Random,
    world: World,
    agents: list[int],
) -> SupportTicket:
    topic = chance.choices(TOPICS, (38, 22, 24, 16))[0]
    priority = chance.choices(PRIORITIES, (22, 50, 21, 7))[0]
    hours = HOURS_TO_CLOSE[priority] * chance.lognormvariate(0.0, 0.7)
    closed_at: datetime | None = opened_at + timedelta(minutes=round(hours * 60))
    status = "closed"
    satisfaction = None
    if closed_at and closed_at > datetime.combine(world.today, time(12)):
        closed_at, status = None, chance.choice(("open", "open", "waiting"))
    elif chance.random() < 0.012:
        closed_at, status = None, "waiting"  # forgotten
    elif chance.random() < 0.55:
        slow = hours > HOURS_TO_CLOSE[priority] * 1.6
        satisfaction = chance.choices(
            (1, 2, 3, 4, 5), (14, 24, 30, 22, 10) if slow else (2, 4, 14, 38, 42)
        )[0]
    return SupportTicket(
        ticket_id=number,
        customer_id=customer_id,
        product_id=product_id if topic in ("quality", "technical") else None,
        assigned_to=chance.choice(agents),
        topic=topic,
        priority=priority,
        status=status,
        opened_at=opened_at,
        closed_at=closed_at,
        satisfaction=satisfaction,
    )
