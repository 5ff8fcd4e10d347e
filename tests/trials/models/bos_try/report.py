"""Report on a model: a table for people, JSON for comparisons of models."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .calls import OK, tokens
from .judge import VERDICTS, Outcome

_FORMAT = 1
_HEADINGS = ("question", "verdict", "calls", "bad", "sent", "received", "cost", "s", "stages")
_ANSWER_CHARS = 200


def line(outcome: Outcome) -> str:
    """Line about one finished question, printed while others still run."""
    judgement = outcome.judgement
    parts = [f"{outcome.question_id}: {judgement.verdict} after {outcome.seconds:.1f} s"]
    if judgement.note:
        parts.append(judgement.note)
    parts += [f"BROKEN: {each}" for each in outcome.broken]
    return "; ".join(_one_line(part) for part in parts)


def table(outcomes: Sequence[Outcome]) -> str:
    """All questions, and their totals."""
    rows = [_HEADINGS, *(_row(outcome) for outcome in outcomes), _totals(outcomes)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    rule = "-" * max(map(len, lines))
    return "\n".join([lines[0], rule, *lines[1:-1], rule, lines[-1]])


def summary(outcomes: Sequence[Outcome]) -> str:
    """How many questions came to which end, and why calls had no usable reply."""
    counts = {verdict: _count(outcomes, verdict) for verdict in VERDICTS}
    said = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    reasons: dict[str, int] = {}
    for outcome in outcomes:
        for call in outcome.calls:
            if call.outcome != OK:
                key = f"{call.agent} {call.outcome}"
                reasons[key] = reasons.get(key, 0) + 1
    lines = [f"{len(outcomes)} questions: {said}."]
    if reasons:
        counts = ", ".join(f"{why} {count}x" for why, count in sorted(reasons.items()))
        lines.append(f"Calls without a usable reply: {counts}.")
    by_rule = [o.question_id for o in outcomes if o.answer and not o.by_model]
    if by_rule:
        lines.append(f"Answers worded by rule: {', '.join(by_rule)}.")
    return "\n".join(lines)


def write_json(path: Path, model: str, about: dict[str, Any], outcomes: Sequence[Outcome]) -> None:
    """Write everything that was seen, calls one by one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "format": _FORMAT,
        "tried_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": model,
        **about,
        "verdicts": {verdict: _count(outcomes, verdict) for verdict in VERDICTS},
        "questions": [_plain(outcome) for outcome in outcomes],
    }
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _plain(outcome: Outcome) -> dict[str, Any]:
    plain = asdict(outcome)
    del plain["since_ns"]
    plain["stages"] = {
        "seconds": {name: round(seconds, 3) for name, seconds in outcome.stages.parts},
        "first_word": outcome.stages.first_word,
    }
    return plain


def _row(outcome: Outcome) -> tuple[str, ...]:
    stages = ", ".join(f"{name} {seconds:.1f}" for name, seconds in outcome.stages.parts)
    return (
        outcome.question_id,
        outcome.judgement.verdict + (" BROKEN" if outcome.broken else ""),
        str(len(outcome.calls)),
        str(sum(call.outcome != OK for call in outcome.calls)),
        str(sum(call.input_tokens for call in outcome.calls)),
        str(sum(call.output_tokens for call in outcome.calls)),
        _money(outcome.cost),
        f"{outcome.seconds:.1f}",
        stages,
    )


def _totals(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    calls = [call for outcome in outcomes for call in outcome.calls]
    known = [outcome.cost for outcome in outcomes if outcome.cost is not None]
    return (
        f"{len(outcomes)} questions",
        f"{_count(outcomes, 'right')} right",
        str(len(calls)),
        str(sum(call.outcome != OK for call in calls)),
        str(sum(call.input_tokens for call in calls)),
        str(sum(call.output_tokens for call in calls)),
        _money(sum(known) if len(known) == len(outcomes) else None),
        f"{sum(outcome.seconds for outcome in outcomes):.1f}",
        f"{tokens(calls)} tokens",
    )


def _money(cost: float | None) -> str:
    return "unknown" if cost is None else f"${cost:.4f}"


def _count(outcomes: Iterable[Outcome], verdict: str) -> int:
    return sum(outcome.judgement.verdict == verdict for outcome in outcomes)


def _one_line(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _ANSWER_CHARS else flat[:_ANSWER_CHARS] + "…"
