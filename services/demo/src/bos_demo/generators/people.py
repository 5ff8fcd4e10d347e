"""Regions, departments and employees."""

from __future__ import annotations

import random
from datetime import date, timedelta

from bos_demo.generators.money import round_to, rupees
from bos_demo.generators.names import (
    DEPARTMENTS,
    FAMILY_NAMES,
    GIVEN_NAMES,
    REGIONS,
    DepartmentPlan,
)
from bos_demo.generators.world import World, working_day
from bos_demo.rows import CompanyRows, Department, Employee, Region

FOUNDED = date(2009, 4, 1)
HEAD_SALARY = 240_000  # Rs. per month
DIRECTOR_SALARY = 520_000
SHARE_LEFT = 0.08


def add_people(rows: CompanyRows, world: World) -> None:
    """Add regions, departments and employees; the first employee of a department heads it."""
    chance = world.chance("people")
    rows.regions += [Region(n, name, market) for n, (name, market) in enumerate(REGIONS, 1)]
    names = _full_names(chance)
    for number, plan in enumerate(DEPARTMENTS, 1):
        budget = round_to(plan.people * plan.salary_range[1] * 12 * 1.2, 50_000)
        rows.departments.append(
            Department(number, plan.name, plan.cost_centre, rupees(budget * 100))
        )
        head = len(rows.employees) + 1
        for place in range(plan.people):
            rows.employees.append(_employee(rows, world, chance, names, plan, head, place))


def _full_names(chance: random.Random) -> list[str]:
    names = [f"{given} {family}" for given in GIVEN_NAMES for family in FAMILY_NAMES]
    chance.shuffle(names)
    return names


def _employee(
    rows: CompanyRows,
    world: World,
    chance: random.Random,
    names: list[str],
    plan: DepartmentPlan,
    head: int,
    place: int,
) -> Employee:
    employee_id = len(rows.employees) + 1
    is_head = place == 0
    hired = _hiring_day(world, chance, is_head=is_head)
    left = None
    if not is_head and chance.random() < SHARE_LEFT and (world.today - hired).days > 400:
        left = hired + timedelta(days=chance.randint(200, (world.today - hired).days - 30))
    full_name = names.pop()
    return Employee(
        employee_id=employee_id,
        full_name=full_name,
        email=f"{full_name.lower().replace(' ', '.')}@nilgiriflow.example",
        department_id=len(rows.departments),
        region_id=1 if is_head else chance.choices((1, 2, 3, 4, 5), (46, 18, 22, 9, 5))[0],
        manager_id=None if employee_id == 1 else (1 if is_head else head),
        job_title=plan.head_title if is_head else chance.choice(plan.titles),
        hired_on=hired,
        left_on=left,
        monthly_salary=rupees(_salary(world, chance, plan, hired, employee_id, is_head) * 100),
    )


def _hiring_day(world: World, chance: random.Random, *, is_head: bool) -> date:
    days = (world.today - FOUNDED).days
    # Heads were hired early; hiring dates of the others cluster in recent years.
    back = chance.uniform(0.4, 1.0) if is_head else chance.betavariate(1.2, 2.4)
    return working_day(world.today - timedelta(days=max(20, int(days * back))))


def _salary(
    world: World,
    chance: random.Random,
    plan: DepartmentPlan,
    hired: date,
    employee_id: int,
    is_head: bool,
) -> int:
    if employee_id == 1:
        return DIRECTOR_SALARY
    if is_head:
        return round_to(HEAD_SALARY * chance.uniform(0.85, 1.25), 500)
    low, high = plan.salary_range
    seniority = min(1.0, (world.today - hired).days / 4000)
    return round_to(low + (high - low) * (0.6 * seniority + 0.4 * chance.random()), 500)
