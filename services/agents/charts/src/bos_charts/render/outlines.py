"""Text of complex scripts in an SVG as outlines shaped by HarfBuzz.

The rasteriser takes the widest glyph of a syllable as the width of all of it, which puts letters of
Indic scripts over one another (resvg in vl-convert-python 1.9.0).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.sax.saxutils import unescape

import uharfbuzz as hb

from bos_charts.fonts import file_of, is_complex, script_of

_TEXT = re.compile(r"<text\b([^>]*)>([^<]*)</text>")
_ATTRIBUTE = re.compile(r'([\w-]+)="([^"]*)"')
_ENTITIES = {"&quot;": '"', "&apos;": "'", "&#39;": "'"}
_KEPT = ("fill", "opacity", "fill-opacity")
_ANCHORS = {"middle": 0.5, "end": 1.0}
_MAX_TEXTS = 2_000


class Outliner:
    """Replaces texts by paths; keeps opened fonts."""

    def __init__(self) -> None:
        self._fonts: dict[str, hb.Font] = {}

    def replace(self, svg: str) -> str:
        """The SVG with a path in place of each text of a complex script."""
        return _TEXT.sub(self._path, svg, count=_MAX_TEXTS)

    def missing(self, text: str) -> list[str]:
        """Characters of a text that its font has no letters for."""
        return [
            char
            for script, part in _runs(text)
            for char in part
            if not self._font(script).get_nominal_glyph(ord(char))
        ]

    def _path(self, found: re.Match[str]) -> str:
        text = unescape(found[2], _ENTITIES)
        if not is_complex(text):
            return found[0]
        attributes = dict(_ATTRIBUTE.findall(found[1]))
        size = float(attributes.get("font-size", "12").removesuffix("px"))
        path, width = self._outline(text, size)
        shift = -width * _ANCHORS.get(attributes.get("text-anchor", ""), 0.0)
        kept = "".join(f' {name}="{attributes[name]}"' for name in _KEPT if name in attributes)
        place = f"{attributes.get('transform', '')} translate({shift:.3f},0)".strip()
        return f'<path d="{path}" transform="{place}"{kept}/>'

    def _outline(self, text: str, size: float) -> tuple[str, float]:
        """SVG path of the text at (0, 0), and its width."""
        pen, x = _Pen(), 0.0
        for script, part in _runs(text):
            font = self._font(script)
            scale = size / font.face.upem
            buffer = hb.Buffer()
            buffer.add_str(part)
            buffer.guess_segment_properties()
            hb.shape(font, buffer)
            infos, places = buffer.glyph_infos, buffer.glyph_positions
            for info, place in zip(infos, places, strict=True):
                pen.place(x + place.x_offset * scale, -place.y_offset * scale, scale)
                font.draw_glyph_with_pen(info.codepoint, pen)
                x += place.x_advance * scale
        return pen.path, x

    def _font(self, script: str) -> hb.Font:
        if script not in self._fonts:
            blob = hb.Blob.from_file_path(str(file_of(script)))
            self._fonts[script] = hb.Font(hb.Face(blob))
        return self._fonts[script]


def _runs(text: str) -> Iterator[tuple[str, str]]:
    """Parts of one script each; what belongs to no script goes with Latin."""
    start, current = 0, script_of(text[0])
    for index, char in enumerate(text):
        script = script_of(char)
        if char in "\u200c\u200d":  # joiners belong to the letters around them
            script = current
        if script != current:
            yield current, text[start:index]
            start, current = index, script
    yield current, text[start:]


class _Pen:
    """Collects the outlines of glyphs as the data of one SVG path, y downwards."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._x, self._y, self._scale = 0.0, 0.0, 1.0

    @property
    def path(self) -> str:
        return "".join(self._parts)

    def place(self, x: float, y: float, scale: float) -> None:
        """Position of the next glyph."""
        self._x, self._y, self._scale = x, y, scale

    def moveTo(self, point: tuple[float, float]) -> None:  # noqa: N802  the protocol of fontTools
        self._add("M", point)

    def lineTo(self, point: tuple[float, float]) -> None:  # noqa: N802
        self._add("L", point)

    def curveTo(self, *points: tuple[float, float]) -> None:  # noqa: N802
        self._add("C", *points)

    def qCurveTo(self, *points: tuple[float, float]) -> None:  # noqa: N802
        self._add("Q", *points)

    def closePath(self) -> None:  # noqa: N802
        self._parts.append("Z")

    def endPath(self) -> None:  # noqa: N802
        """An open outline, which fonts have none of."""

    def _add(self, command: str, *points: tuple[float, float]) -> None:
        numbers = (
            f"{self._x + x * self._scale:.2f} {self._y - y * self._scale:.2f}" for x, y in points
        )
        self._parts.append(command + " ".join(numbers))
