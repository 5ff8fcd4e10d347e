"""Calculator: exact arithmetic on expressions, without a model. Pure.

Numbers are decimals, so 0.1 + 0.2 is 0.3. Supported are ``+ - * / // % **``, parentheses, and the
functions ``abs``, ``max``, ``min``, ``round`` (half away from zero), ``sqrt`` and ``sum``.
"""

from __future__ import annotations

import ast
import decimal
import math
from collections.abc import Callable
from decimal import Decimal

from bos_errors import InvalidArgument

FUNCTIONS = ("abs", "max", "min", "round", "sqrt", "sum")

MAX_CHARS = 500
_MAX_DEPTH = 200
_MAX_DIGITS = 300
_MAX_ROUND_DIGITS = 50
_INEXACT_DIGITS = 28
"""Significant digits of a non-terminating result, such as 1 / 3."""


class CalculationError(InvalidArgument):
    """The expression has no value; the message gives the reason."""

    default_reason = "CALCULATION_ERROR"


def calculate(expression: str) -> int | Decimal:
    """Evaluate ``expression``; returns an int if the value is whole, otherwise a decimal.

    Raises:
        CalculationError: it is not arithmetic, too long, too large, or has no value.
    """
    tree = parse(expression)
    # Twice the digits of any intermediate result: products of whole numbers stay exact.
    context = decimal.Context(prec=2 * _MAX_DIGITS, Emax=10_000, Emin=-10_000)
    with decimal.localcontext(context) as local:
        try:
            value = _value(tree, expression.strip())
        except decimal.InvalidOperation:
            raise CalculationError("It has no value among the real numbers.") from None
        except decimal.Overflow:
            raise _too_large() from None
        inexact = bool(local.flags[decimal.Inexact])
    if inexact:
        value = _shortened(value)
    if value == value.to_integral_value() and (not inexact or value.adjusted() < _INEXACT_DIGITS):
        return int(value)
    # Trailing zeros are artefacts of the calculation.
    return _trimmed(value)


def parse(expression: str) -> ast.expr:
    """Parse ``expression`` to its syntax tree.

    Raises:
        CalculationError: it is not an expression or too long.
    """
    if len(expression) > MAX_CHARS:
        raise CalculationError(f"An expression may have {MAX_CHARS} characters.")
    try:
        return ast.parse(expression.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise CalculationError(
            "It is not an arithmetic expression such as 12.5 * (3 + 4)."
        ) from None


def _value(node: ast.expr, source: str, depth: int = 0) -> Decimal:
    if depth > _MAX_DEPTH:
        raise CalculationError(f"It is nested more than {_MAX_DEPTH} deep.")
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            # From the source text: the parser has converted it to a binary float already.
            written = ast.get_source_segment(source, node) or str(number)
            return _bounded(_number(written))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, source, depth + 1)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand, source, depth + 1)
        case ast.BinOp(left=left, op=operator, right=right):
            operate = _OPERATORS.get(type(operator))
            if operate is None:
                raise _unknown(node, source)
            operands = (_value(left, source, depth + 1), _value(right, source, depth + 1))
            return _bounded(operate(*operands))
        case ast.Call(func=ast.Name(id=name), args=[*arguments], keywords=[]) if name in FUNCTIONS:
            values = [_value(argument, source, depth + 1) for argument in arguments]
            return _bounded(_call(name, values))
        case _:
            raise _unknown(node, source)


def _number(written: str) -> Decimal:
    try:
        return Decimal(written)
    except decimal.InvalidOperation:
        raise CalculationError(f"{written[:40]} is not a decimal number.") from None


def _call(name: str, values: list[Decimal]) -> Decimal:
    match name, values:
        case "abs", [value]:
            return abs(value)
        case "sqrt", [value]:
            return value.sqrt()
        case "round", [value]:
            return _round(value, Decimal(0))
        case "round", [value, digits]:
            return _round(value, digits)
        case "max", [_, *_]:
            return max(values)
        case "min", [_, *_]:
            return min(values)
        case "sum", [_, *_]:
            return sum(values, Decimal(0))
    raise CalculationError(f"{name} does not take {len(values)} numbers.")


def _round(value: Decimal, digits: Decimal) -> Decimal:
    if digits != digits.to_integral_value() or abs(digits) > _MAX_ROUND_DIGITS:
        raise CalculationError(f"round keeps a whole number of digits, up to {_MAX_ROUND_DIGITS}.")
    with decimal.localcontext():  # explicit rounding does not make a result inexact
        return value.quantize(Decimal(1).scaleb(-int(digits)), rounding=decimal.ROUND_HALF_UP)


def _divide(left: Decimal, right: Decimal) -> Decimal:
    if right == 0:
        raise _by_zero()
    return left / right


def _floor_divide(left: Decimal, right: Decimal) -> Decimal:
    """Floor division as in Python, towards minus infinity; that of decimals truncates."""
    if right == 0:
        raise _by_zero()
    quotient, remainder = divmod(left, right)
    return quotient - 1 if remainder and (remainder < 0) != (right < 0) else quotient


def _modulo(left: Decimal, right: Decimal) -> Decimal:
    return left - right * _floor_divide(left, right)


def _power(base: Decimal, exponent: Decimal) -> Decimal:
    if exponent == 0:
        return Decimal(1)
    if base == 0:
        if exponent < 0:
            raise _by_zero()
        return Decimal(0)
    # With floats: a decimal logarithm would flag every power as inexact.
    if abs(math.log10(abs(base)) * float(exponent)) > _MAX_DIGITS:
        raise _too_large()
    return base**exponent


_OPERATORS: dict[type[ast.operator], Callable[[Decimal, Decimal], Decimal]] = {
    ast.Add: lambda left, right: left + right,
    ast.Sub: lambda left, right: left - right,
    ast.Mult: lambda left, right: left * right,
    ast.Div: _divide,
    ast.FloorDiv: _floor_divide,
    ast.Mod: _modulo,
    ast.Pow: _power,
}


def _bounded(value: Decimal) -> Decimal:
    if value and abs(value.adjusted()) > _MAX_DIGITS:
        raise _too_large()
    return value


def _shortened(value: Decimal) -> Decimal:
    return value.normalize(decimal.Context(prec=_INEXACT_DIGITS))


def _trimmed(value: Decimal) -> Decimal:
    return value.normalize(decimal.Context(prec=2 * _MAX_DIGITS))


def _by_zero() -> CalculationError:
    return CalculationError("It divides by zero.")


def _too_large() -> CalculationError:
    return CalculationError(f"A number in it has more than {_MAX_DIGITS} digits.")


def _unknown(node: ast.expr, source: str) -> CalculationError:
    part = ast.get_source_segment(source, node) or "a part"
    return CalculationError(
        f"{part[:60]} is not arithmetic; known are + - * / // % ** and {', '.join(FUNCTIONS)}."
    )
