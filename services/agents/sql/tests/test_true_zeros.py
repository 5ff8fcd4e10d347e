"""What is said of results without a value is proven: a filter that keeps rows removes none."""

from typing import Any

import pytest

from .conftest import SUCCEEDED, draft, fixtures


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT SUM(amount) - SUM(amount) AS d FROM orders WHERE amount > 1 AND order_id < 3", ""),
        ("SELECT SUM(NULLIF(amount, amount)) AS größe FROM orders WHERE amount > 1", ""),
        ("SELECT COUNT(*) AS n FROM orders WHERE order_id = 99 AND amount > 1", "The filter"),
        (
            "SELECT a.order_id FROM orders a JOIN orders b ON b.order_id = a.order_id + 1000"
            " WHERE a.amount > 1",
            "Without any filter in WHERE there are no rows either: no rows of orders meet the"
            " conditions of the join.",
        ),
    ],
)  # fmt: skip
async def test_only_what_was_proven_is_said(
    start: Any, postgres_url: str, sql: str, said: str
) -> None:
    harness = await start(
        fixtures(drafted=draft(sql)), url=postgres_url, tables=("customers", "orders")
    )
    done = await harness.ask()
    assert done.result.status == SUCCEEDED, done.result.error
    assert "".join(done.result.caveats).startswith(said)
    assert len(done.result.caveats) == bool(said)
