"""Detection of plain arithmetic in a task. Pure."""

from __future__ import annotations

import ast
import re

from bos_computation.calculator import FUNCTIONS, MAX_CHARS, CalculationError, parse

_LEAD = re.compile(
    r"(?:please|can you|could you|tell me|what\s+is|what's|how\s+much\s+is|calculate|compute|"
    r"evaluate|work\s+out|the\s+(?:result|value|sum)\s+of)\b[\s:]*",
    re.IGNORECASE,
)
_TAIL = re.compile(r"[\s=?.!]+$|\s+(?:equal|equals)(?:\s+to)?[\s?]*$", re.IGNORECASE)
_SIGNS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "\u00a0": " "})
_WORDS = (
    (r"\bplus\b", "+"),
    (r"\bminus\b", "-"),
    (r"\b(?:times|multiplied\s+by)\b", "*"),
    (r"\bdivided\s+by\b", "/"),
    (r"\b(?:to\s+the\s+power\s+of)\b|\^", "**"),
    (r"\bsquared\b", "**2"),
    (r"\bcubed\b", "**3"),
    (r"\bmod(?:ulo)?\b", "%"),
    (r"(?<=\d)(?<!\b0)\s*[xX]\s*(?=[\d(])", "*"),
    (r"\b(?:the\s+)?square\s+root\s+of\s+(\d+(?:\.\d+)?)", r"sqrt(\1)"),
)
_PERCENT = r"(\d+(?:\.\d+)?)\s*(?:%|\bper\s?cent\b)"
_PERCENT_OF = re.compile(_PERCENT + r"\s+of\s+", re.IGNORECASE)
_PERCENT_FACTOR = re.compile(_PERCENT + r"(?=\s*[*/])", re.IGNORECASE)
# 2,450 and the Indian 2,45,750, but no list of arguments.
_GROUPED = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{2,3})*,\d{3}(?![\d,])")
_DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}|\b\d{1,2}/\d{1,2}/\d{2,4}\b")
_ARITHMETIC = re.compile(rf"(?:[\d.\s+\-*/%(),]|\b(?:{'|'.join(FUNCTIONS)})\b)+")


def find_expression(task: str) -> str | None:
    """Expression in ``task`` for ``calculate``; None if the task is more than arithmetic.

    Parses "what is 12.5 * (3 + 4)?" and "calculate 17% of 2,450". Ambiguous expressions, such as
    ``200 + 10%``, are left to the model.
    """
    text = task.strip().translate(_SIGNS)
    if len(text) > MAX_CHARS or _DATE.search(text):
        return None
    while (lead := _LEAD.match(text)) is not None:
        text = text[lead.end() :]
    text = _TAIL.sub("", text)
    for pattern, sign in _WORDS:
        text = re.sub(pattern, sign, text, flags=re.IGNORECASE)
    if not any(f"{name}(" in text for name in FUNCTIONS):
        text = _GROUPED.sub(lambda match: match[0].replace(",", ""), text)
    text = _PERCENT_OF.sub(r"\1 / 100 * ", text)
    text = _PERCENT_FACTOR.sub(r"\1 / 100", text).strip()
    if _ARITHMETIC.fullmatch(text) is None:
        return None
    try:
        tree = parse(text)
    except CalculationError:
        return None
    # A lone number is no question, and a tuple is a list of values.
    return text if isinstance(tree, ast.BinOp | ast.Call) else None
