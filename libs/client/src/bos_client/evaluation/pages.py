"""An evaluation as one HTML page that needs nothing else: no script, no address."""

from __future__ import annotations

from html import escape
from typing import Any

_STYLE = """
body{font:15px/1.45 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.3rem .6rem;
border-bottom:1px solid #8884;vertical-align:top}td.n{text-align:right}
.yes{color:#176b2c}.no{color:#b3261e;font-weight:600}pre{white-space:pre-wrap;margin:.3rem 0}
@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}.yes{color:#6ecf86}.no{color:#ff8a80}}
"""


def page_of(report: dict[str, Any]) -> str:
    """The page of an evaluation: totals, kinds, and every question with its checks."""
    title = f"Evaluation: {report['set']}"
    totals = report["totals"]
    head = (
        f"{totals['passed']} of {totals['questions']} passed; {totals['calls']} model calls, "
        f"{totals['tokens']} tokens, {cost_text(totals['cost_micros'])}, {totals['seconds']} s; "
        f"{report['time']}"
    )
    kinds = "".join(
        f"<tr><td>{escape(kind)}</td><td class=n>{passed}</td><td class=n>{asked}</td></tr>"
        for kind, (passed, asked) in by_kind(report).items()
    )
    rows = "".join(map(_row, report["results"]))
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style><h1>{escape(title)}</h1><p>{escape(head)}</p>"
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


def cost_text(micros: int) -> str:
    """Cost in US dollars; unknown where no price is."""
    return f"${micros / 1_000_000:.4f}" if micros else "cost unknown"


def _row(result: dict[str, Any]) -> str:
    verdict = '<td class="yes">yes' if result["passed"] else '<td class="no">no'
    checks = "".join(map(_check, result["checks"]))
    sql = "".join(f"<pre>{escape(each)}</pre>" for each in result["sql"])
    return (
        f"<tr><td><details><summary>{escape(result['id'])}: {escape(result['question'])}</summary>"
        f"<p>{escape(result['answer'])}</p>{sql}<ul>{checks}</ul>{escape(result['run_id'])}"
        f"</details></td>{verdict}</td><td>{escape(', '.join(result['agents']))}</td>"
        f"<td class=n>{result['calls']}</td><td class=n>{result['tokens']}</td>"
        f"<td class=n>{escape(cost_text(result['cost_micros']))}</td>"
        f"<td class=n>{result['seconds']}</td></tr>"
    )


def _check(check: dict[str, Any]) -> str:
    name, found = escape(check["name"]), escape(check["found"])
    if check["passed"]:
        return f'<li class="yes">{name}: {found}'
    return f'<li class="no">{name}: {found}, expected: {escape(check["expected"])}'
