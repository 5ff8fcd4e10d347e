"""Product categories, suppliers, products and warehouses."""

from __future__ import annotations

import random
from datetime import date, timedelta
from decimal import Decimal

from bos_demo.generators.money import round_to, rupees
from bos_demo.generators.names import (
    CATEGORIES,
    PRODUCT_SERIES,
    REGIONS,
    SUPPLIER_PREFIXES,
    SUPPLIER_SUFFIXES,
    SUPPLIER_TRADES,
    WAREHOUSES,
    CategoryPlan,
)
from bos_demo.generators.world import World
from bos_demo.rows import CompanyRows, Product, ProductCategory, Supplier, Warehouse

SUPPLIERS = 60
SHARE_KEPT = 0.62  # of all possible products
DISCONTINUED = 9
NEW_PRODUCTS = 14


def add_catalogue(rows: CompanyRows, world: World) -> None:
    """Add categories, suppliers, products and warehouses."""
    chance = world.chance("catalogue")
    region_ids = {name: n for n, (name, _) in enumerate(REGIONS, 1)}
    for number, (name, city, region, area) in enumerate(WAREHOUSES, 1):
        rows.warehouses.append(Warehouse(number, name, city, region_ids[region], area))
    _add_categories(rows)
    _add_suppliers(rows, chance)
    _add_products(rows, world, chance)


def _add_categories(rows: CompanyRows) -> None:
    groups = list(dict.fromkeys(plan.group for plan in CATEGORIES))
    ids = {name: n for n, name in enumerate(groups, 1)}
    rows.product_categories += [ProductCategory(n, name, None) for name, n in ids.items()]
    for number, plan in enumerate(CATEGORIES, len(groups) + 1):
        rows.product_categories.append(ProductCategory(number, plan.name, ids[plan.group]))


def _add_suppliers(rows: CompanyRows, chance: random.Random) -> None:
    pairs = [(place, trade) for place in SUPPLIER_PREFIXES for trade in SUPPLIER_TRADES]
    for number, ((prefix, city, country), trade) in enumerate(chance.sample(pairs, SUPPLIERS), 1):
        abroad = country != "India"
        name = f"{prefix} {trade}"
        if not abroad:
            name = f"{name} {chance.choice(SUPPLIER_SUFFIXES)}"
        slug = f"{prefix}-{trade}".lower().replace(" ", "-")
        rows.suppliers.append(
            Supplier(
                supplier_id=number,
                supplier_name=name,
                city=city,
                country=country,
                contact_email=f"orders@{slug}.example",
                rating=Decimal(min(50, max(21, round(chance.gauss(38, 6))))).scaleb(-1),
                lead_time_days=chance.randint(38, 75) if abroad else chance.randint(9, 34),
                payment_terms_days=chance.choice((30, 45, 60)),
                status="on_hold" if chance.random() < 0.06 else "active",
            )
        )


def _add_products(rows: CompanyRows, world: World, chance: random.Random) -> None:
    first_category = len(rows.product_categories) - len(CATEGORIES) + 1
    suppliers = [s.supplier_id for s in rows.suppliers if s.status == "active"]
    for category_id, plan in enumerate(CATEGORIES, first_category):
        # A few suppliers per category, for comparisons.
        sources = chance.sample(suppliers, 5)
        for series in PRODUCT_SERIES:
            for material in plan.materials:
                for place, size in enumerate(plan.sizes):
                    if chance.random() < SHARE_KEPT:
                        name = f"{series} {material} {plan.noun} {size}"
                        price = _price(plan, place, material, chance)
                        rows.products.append(
                            _product(rows, plan, category_id, name, price, chance, sources)
                        )
    _age_products(rows, world, chance)


def _price(plan: CategoryPlan, place: int, material: str, chance: random.Random) -> int:
    low, high = plan.price_range
    position = place / (len(plan.sizes) - 1)
    price = low * (high / low) ** position * chance.uniform(0.9, 1.12)
    if material.startswith("Stainless"):
        price *= 1.3
    return round_to(price, 10 if price > 1000 else 1)


def _product(
    rows: CompanyRows,
    plan: CategoryPlan,
    category_id: int,
    name: str,
    price: int,
    chance: random.Random,
    sources: list[int],
) -> Product:
    number = len(rows.products) + 1
    return Product(
        product_id=number,
        sku=f"{plan.code}-{1000 + number}",
        product_name=name,
        category_id=category_id,
        supplier_id=chance.choice(sources),
        unit=plan.unit,
        list_price=rupees(price * 100),
        unit_cost=rupees(round(price * chance.uniform(0.58, 0.74) * 100)),
        reorder_level=0,  # set once demand is known
        launched_on=date(2018, 1, 1) + timedelta(days=chance.randint(0, 1800)),
        discontinued_on=None,
    )


def _age_products(rows: CompanyRows, world: World, chance: random.Random) -> None:
    """Discontinue a few products and introduce others during the recorded time."""
    span = (world.today - world.start).days
    chosen = chance.sample(range(len(rows.products)), DISCONTINUED + NEW_PRODUCTS)
    for index in chosen[:DISCONTINUED]:
        last = world.start + timedelta(days=int(span * chance.uniform(0.35, 0.9)))
        rows.products[index] = rows.products[index]._replace(discontinued_on=last)
    for index in chosen[DISCONTINUED:]:
        first = world.start + timedelta(days=int(span * chance.uniform(0.1, 0.92)))
        rows.products[index] = rows.products[index]._replace(launched_on=first)
