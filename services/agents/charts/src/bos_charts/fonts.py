"""Fonts of charts by script, from installed packages: files and family names."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from pathlib import Path

import manimgx_fonts
import noto_cjk_sans_otc

DEFAULT = "Noto Sans"
_SCRIPTS = {
    "ARABIC": "Noto Sans Arabic",
    "ARMENIAN": "Noto Sans Armenian",
    "BENGALI": "Noto Sans Bengali",
    "DEVANAGARI": "Noto Sans Devanagari",
    "ETHIOPIC": "Noto Sans Ethiopic",
    "GEORGIAN": "Noto Sans Georgian",
    "GUJARATI": "Noto Sans Gujarati",
    "GURMUKHI": "Noto Sans Gurmukhi",
    "HEBREW": "Noto Sans Hebrew",
    "KANNADA": "Noto Sans Kannada",
    "KHMER": "Noto Sans Khmer",
    "LAO": "Noto Sans Lao",
    "MALAYALAM": "Noto Sans Malayalam",
    "MYANMAR": "Noto Sans Myanmar",
    "ORIYA": "Noto Sans Oriya",
    "SINHALA": "Noto Sans Sinhala",
    "TAMIL": "Noto Sans Tamil",
    "TELUGU": "Noto Sans Telugu",
    "THAI": "Noto Sans Thai",
    "CJK": "Noto Sans CJK SC",
    "HIRAGANA": "Noto Sans CJK JP",
    "KATAKANA": "Noto Sans CJK JP",
    "HANGUL": "Noto Sans CJK KR",
}
_COMPLEX = frozenset(
    [
        "BENGALI",
        "DEVANAGARI",
        "GUJARATI",
        "GURMUKHI",
        "KANNADA",
        "KHMER",
        "LAO",
        "MALAYALAM",
        "MYANMAR",
        "ORIYA",
        "SINHALA",
        "TAMIL",
        "TELUGU",
        "THAI",
    ]
)
"""Scripts in which the renderer's own text layout puts letters over one another."""


def folders() -> tuple[Path, ...]:
    """Folders with the font files."""
    return tuple(Path(str(files(package))) for package in (manimgx_fonts, noto_cjk_sans_otc))


def font_for(texts: Iterable[str]) -> str:
    """Family names for these texts, as CSS lists them: that of their most frequent script first."""
    scripts = Counter(script for text in texts for script in map(script_of, text) if script)
    found = [_SCRIPTS[script] for script, _ in scripts.most_common(3)]
    return ", ".join(dict.fromkeys([DEFAULT, *found]))


def is_complex(text: str) -> bool:
    """Whether a text needs the shaping of :mod:`bos_charts.render.outlines`."""
    return any(script_of(char) in _COMPLEX for char in text)


@cache
def script_of(char: str) -> str:
    """Script of a character that Noto Sans itself does not cover; else empty."""
    if ord(char) < 0x530:
        return ""
    word = unicodedata.name(char, "").partition(" ")[0]
    return word if word in _SCRIPTS else ""


def file_of(script: str) -> Path:
    """Font file of a complex script; that of Latin for any other."""
    family = _SCRIPTS[script] if script in _COMPLEX else DEFAULT
    return folders()[0] / f"{family.replace(' ', '')}[wght].ttf"
