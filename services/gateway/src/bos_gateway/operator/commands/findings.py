"""Findings of checks: one line each, with what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """Severity of a finding; the worst comes last."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's report. Holds no secrets."""

    check: str
    level: Level
    text: str
    advice: str = ""
    """What to do; empty if all is well."""


def ok(check: str, text: str) -> Finding:
    """All is well."""
    return Finding(check, Level.OK, text)


def warning(check: str, text: str, advice: str) -> Finding:
    """Worth a look; Bos works."""
    return Finding(check, Level.WARNING, text, advice)


def problem(check: str, text: str, advice: str) -> Finding:
    """Something does not work."""
    return Finding(check, Level.PROBLEM, text, advice)
