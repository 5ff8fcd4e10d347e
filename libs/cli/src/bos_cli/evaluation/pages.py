"""An evaluation as one HTML page that needs nothing else: no script, no address."""

from __future__ import annotations

from html import escape
from typing import Any

from bos_cli.evaluation.grading import CRITERIA

_STYLE = """
body{font:15px/1.45 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.3rem .6rem;
border-bottom:1px solid #8884;vertical-align:top}td.n{text-align:right}
.yes{color:#176b2c}.no{color:#b3261e;font-weight:600}.open{color:#8a5a00}
pre{white-space:pre-wrap;margin:.3rem 0}
@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}
.yes{color:#6ecf86}.no{color:#ff8a80}.open{color:#e5b567}}
"""
_MARKS = {
    "passed": ("yes", "yes"),
    "failed": ("no", "no"),
    "not_graded": ("open", "not graded"),
    "error": ("no", "the grader failed"),
}
"""Class and words of a verdict."""


def page_of(report: dict[str, Any]) -> str:
    """The page of an evaluation: totals, kinds, and every question with its checks."""
    title = f"Evaluation: {report['set']}"
    totals = report["totals"]
    head = (
        f"{passed_text(totals)}; {totals['calls']} model calls, "
        f"{totals['tokens']} tokens, {cost_text(totals['cost_micros'])}, {totals['seconds']} s; "
        f"{report['time']}"
    )
    grading = f"<p>{escape(text)}</p>" if (text := grader_text(report)) else ""
    kinds = "".join(
        f"<tr><td>{escape(kind)}</td><td class=n>{passed}</td><td class=n>{asked}</td></tr>"
        for kind, (passed, asked) in by_kind(report).items()
    )
    rows = "".join(map(_row, report["results"]))
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style><h1>{escape(title)}</h1><p>{escape(head)}</p>{grading}"
        f"<table><tr><th>Kind<th>Passed<th>Asked</tr>{kinds}</table><h2>Questions</h2>"
        "<table><tr><th>Question<th>Passed<th>Agents<th>Calls<th>Tokens<th>Cost<th>Seconds</tr>"
        f"{rows}</table></html>\n"
    )


def by_kind(report: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Questions that passed and that were asked, by their kind, in the order of the set."""
    found: dict[str, tuple[int, int]] = {}
    for each in report["results"]:
        passed, asked = found.get(each["kind"], (0, 0))
        found[each["kind"]] = (passed + bool(each["passed"]), asked + 1)
    return found


def passed_text(totals: dict[str, Any]) -> str:
    """How many questions passed, and how many wait for a model to grade them."""
    passed = f"{totals['passed']} of {totals['questions']} passed"
    return f"{passed}, {totals['not_graded']} not graded" if totals["not_graded"] else passed


def grader_text(report: dict[str, Any]) -> str:
    """What grading by a model took; empty where none was named."""
    grader = report["grader"]
    if not grader["model"]:
        return ""
    return (
        f"graded by {grader['model']}: {grader['calls']} model calls, {grader['tokens']} tokens, "
        f"{cost_text(grader['cost_micros'])}"
    )


def cost_text(micros: int) -> str:
    """Cost in US dollars; unknown where no price is."""
    return f"${micros / 1_000_000:.4f}" if micros else "cost unknown"


def _row(result: dict[str, Any]) -> str:
    style, words = _MARKS[result["verdict"]]
    checks = "".join(map(_check, result["checks"]))
    sql = "".join(f"<pre>{escape(each)}</pre>" for each in result["sql"])
    return (
        f"<tr><td><details><summary>{escape(result['id'])}: {escape(result['question'])}</summary>"
        f"<p>{escape(result['answer'])}</p>{sql}<ul>{checks}</ul>{escape(result['run_id'])}"
        f'</details></td><td class="{style}">{words}</td>'
        f"<td>{escape(', '.join(result['agents']))}</td>"
        f"<td class=n>{result['calls']}</td><td class=n>{result['tokens']}</td>"
        f"<td class=n>{escape(cost_text(result['cost_micros']))}</td>"
        f"<td class=n>{result['seconds']}</td></tr>"
    )


def _check(check: dict[str, Any]) -> str:
    style, _ = _MARKS[check["verdict"]]
    name, found, expected = (escape(check[each]) for each in ("name", "found", "expected"))
    if check["name"] == CRITERIA:  # whose reason is worth a look also where it is met
        return f'<li class="{style}">{name}: {expected}<br>{found}'
    more = "" if check["verdict"] == "passed" else f", expected: {expected}"
    return f'<li class="{style}">{name}: {found}{more}'
