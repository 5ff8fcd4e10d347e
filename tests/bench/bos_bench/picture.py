"""The diamond's figures as an SVG; it has a ground of its own, readable on light and on dark."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from bos_bench.measure import Figures, Part

_WIDTH, _MARGIN, _LABEL, _VALUE = 860, 24, 220, 130
_BAR, _STEP, _TITLE, _GAP = 18, 25, 44, 20
_WAYS = {
    "separate": "Bos, a process per service",
    "standalone": "Bos, standalone",
    "openai": "bare loop, openai package",
    "aiohttp": "bare loop, openai on aiohttp",
    "http": "bare loop, plain HTTP",
}
_COLOURS = {"separate": "#1f6f8b", "standalone": "#4fa3bf"}
_BARE = "#8a8f98"
_STACK = ("#174f63", "#1f6f8b", "#2f8ba8", "#4fa3bf", "#77bcd2", "#a3d5e4")

Segment = tuple[float, str, str]
"""Length in the panel's unit, colour and name."""


def write_picture(path: Path, part: Part) -> None:
    """Draw the part ``diamond`` of one bench."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(_svg(part)) + "\n", encoding="utf-8")


def _svg(part: Part) -> Iterator[str]:
    # The busiest case that says more about processor time than about queues.
    concurrent = [case for case in part["0 ms a call"] if not case.startswith("1 ")]
    busy = concurrent[0] if concurrent else next(iter(part["0 ms a call"]))
    alone, most = part["50 ms a call"]["1 at once"], (concurrent or [busy])[-1]
    panels: list[tuple[str, str, Mapping[str, Sequence[Segment]]]] = [
        (
            f"Processor time per run, {busy}, a model that answers immediately",
            "ms",
            {way: _cpu(way, part["0 ms a call"][busy]) for way in _WAYS},
        ),
        (
            "Question to whole answer, one at a time, 50 ms a model call (four in a row)",
            "ms",
            {way: [(alone[f"{way}_p50_ms"], _colour(way), "")] for way in _WAYS},
        ),
        *(
            (
                f"Runs per second, {case}, 50 ms a model call",
                "/s",
                {
                    way: [(part["50 ms a call"][case][f"{way}_runs_per_s"], _colour(way), "")]
                    for way in _WAYS
                },
            )
            for case in dict.fromkeys((busy, most))
        ),
    ]
    height = _MARGIN * 2 + len(panels) * (_TITLE + len(_WAYS) * _STEP + _GAP) - _GAP
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" font-family="Helvetica, Arial, sans-serif" '
        'font-size="13" fill="#22262b" role="img">'
    )
    yield "<title>Five model calls through Bos and without it</title>"
    yield f'<rect width="{_WIDTH}" height="{height}" rx="8" fill="#ffffff" stroke="#d5d8dc"/>'
    top = _MARGIN
    for title, unit, bars in panels:
        yield from _panel(top, title, unit, bars)
        top += _TITLE + len(_WAYS) * _STEP + _GAP
    yield "</svg>"


def _panel(top: int, title: str, unit: str, bars: Mapping[str, Sequence[Segment]]) -> Iterator[str]:
    yield f'<text x="{_MARGIN}" y="{top + 16}" font-weight="bold">{escape(title)}</text>'
    room = _WIDTH - 2 * _MARGIN - _LABEL - _VALUE
    longest = max(sum(length for length, _, _ in bar) for bar in bars.values()) or 1.0
    for index, (way, bar) in enumerate(bars.items()):
        y = top + _TITLE - 10 + index * _STEP
        x = float(_MARGIN + _LABEL)
        yield f'<text x="{_MARGIN}" y="{y + 13}">{escape(_WAYS[way])}</text>'
        for length, colour, name in bar:
            width = length / longest * room
            yield (
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_BAR}" fill="{colour}">'
                f"<title>{escape(name or _WAYS[way])}: {length:.1f} {unit}</title></rect>"
            )
            if name and width > 7 * len(name):
                yield (
                    f'<text x="{x + width / 2:.1f}" y="{y + 13}" font-size="10" '
                    f'text-anchor="middle" fill="{_ink(colour)}">{escape(name)}</text>'
                )
            x += width
        total = sum(length for length, _, _ in bar)
        shown = f"{total:.0f}" if total >= 100 else f"{total:.1f}"
        yield f'<text x="{x + 6:.1f}" y="{y + 13}">{shown} {unit}</text>'


def _cpu(way: str, case: Figures) -> list[Segment]:
    """One bar per way; the processes of separate services one after the other."""
    services = [
        name.removeprefix(f"{way}_").removesuffix("_cpu_ms")
        for name in case
        if name.startswith(f"{way}_") and name.endswith("_cpu_ms") and "_over_" not in name
    ]
    parts = [name for name in services if name not in ("postgres", "client", "cpu_ms")]
    if len(parts) < 2:
        return [(case[f"{way}_cpu_ms"], _colour(way), "")]
    return [
        (case[f"{way}_{name}_cpu_ms"], _STACK[i % len(_STACK)], name)
        for i, name in enumerate(parts)
    ]


def _colour(way: str) -> str:
    return _COLOURS.get(way, _BARE)


def _ink(colour: str) -> str:
    return "#ffffff" if colour in _STACK[:3] else "#22262b"
