"""What programs are given in tests, and what CPython makes of them."""

import ast
import contextlib
import io
from datetime import date
from decimal import Decimal
from typing import Any

ROWS = [
    {"customer": "Arbor", "revenue": Decimal("175206.00"), "orders": 12, "day": date(2025, 7, 1)},
    {"customer": "Birke", "revenue": Decimal("99120.55"), "orders": 7, "day": date(2025, 8, 14)},
    {"customer": "Cedar", "revenue": Decimal("4010.10"), "orders": 1, "day": date(2025, 9, 30)},
]
INPUTS = {
    "rows": ROWS,
    "total": Decimal("1250000.25"),
    "numbers": [3, 1, 4, 1, 5, 9, 2, 6],
    "today": date(2025, 10, 1),
    "big": 2**80,
}


def as_cpython(code: str) -> tuple[Any, str]:
    """Result and output of ``code`` in this process, by the rules of the sandbox."""
    tree = ast.parse(code)
    names: dict[str, Any] = {"__name__": "__main__", **INPUTS}
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(tree, "program", "exec"), names)
        value = None
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "program", "eval"), names)
    return (names.get("result") if value is None else value), printed.getvalue()
