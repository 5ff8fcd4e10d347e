"""Validation of programs before they are proposed, and digests of their inputs."""

from __future__ import annotations

import ast
import hashlib
import unicodedata
import warnings
from collections.abc import Mapping
from typing import Any

from bos_agentkit.actions import canonical_form
from bos_chassis.values import to_value_map

_CONTROLS = frozenset({"Cc", "Zl", "Zp"})
_BIDI_CONTROLS = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})

FRAME_HELPER = '''\
def frame(rows):
    """Rows as a pandas DataFrame; exact decimals become floats."""
    import pandas as pd
    from decimal import Decimal

    table = pd.DataFrame(rows)
    for name in table.columns:
        if any(isinstance(cell, Decimal) for cell in table[name]):
            table[name] = table[name].astype(float)
    return table


'''
"""Prepended to programs that call it, so that the approver sees the whole program."""


def program_problem(code: str, max_bytes: int) -> str:
    """Why ``code`` cannot be proposed, in a sentence; empty if it can."""
    if len(code.encode("utf-8", "replace")) > max_bytes:
        return f"The program has more than {max_bytes} bytes."
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escape sequences in strings
            ast.parse(code)
    except SyntaxError as error:
        return f"line {error.lineno or 1}: {type(error).__name__}: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        return f"The program cannot be read: {type(error).__name__}."
    return _hidden_characters(code)


def _hidden_characters(code: str) -> str:
    """Characters that hide what ``code`` does, in a sentence; empty if there are none.

    A carriage return ends a comment for Python and is invisible in a terminal; bidirectional
    control characters show code in another order than the one that runs.
    """
    for number, line in enumerate(code.split("\n"), 1):
        for character in line.replace("\t", ""):
            hidden = unicodedata.category(character) in _CONTROLS
            if hidden or unicodedata.bidirectional(character) in _BIDI_CONTROLS:
                return (
                    f"line {number} holds U+{ord(character):04X}, which is not shown as it is "
                    "read; in a text write it as an escape."
                )
    return ""


def with_helper(code: str) -> str:
    """``code``, with the helper prepended if it calls but does not define it."""
    if "frame(" in code and "def frame(" not in code:
        return FRAME_HELPER + code
    return code


def input_digests(values: Mapping[str, Any]) -> dict[str, str]:
    """Digest of each input, so that an approval covers exactly these data."""
    return {
        name: hashlib.sha256(
            canonical_form("input", to_value_map({"value": value})).encode()
        ).hexdigest()
        for name, value in values.items()
    }
