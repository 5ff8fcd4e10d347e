"""Fonts of PDF files: Noto, from packages, and those of the operator's folder."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Final

from bos_errors import ConfigurationError

MONO: Final = "DejaVu Sans Mono"
"""Part of the compiler."""
DEFAULT: Final = (
    "Noto Sans",
    "Noto Sans Devanagari",
    "Noto Sans Bengali",
    "Noto Sans Tamil",
    "Noto Sans Telugu",
    "Noto Sans Arabic",
)
CHINESE: Final = ("Noto Sans SC", "Noto Sans TC", "Noto Sans JP", "Noto Sans KR")
JAPANESE: Final = ("Noto Sans JP", "Noto Sans SC", "Noto Sans KR")
KOREAN: Final = ("Noto Sans KR", "Noto Sans JP", "Noto Sans SC")
_PACKAGES: Final = (
    "fontpkg_noto_sans",
    "fontpkg_noto_sans_arabic",
    "justmytype_intl_cjk",
    "justmytype_intl_south_asia",
)


def font_folders(own: Path | None = None) -> list[Path]:
    """Folders with fonts.

    Raises:
        ConfigurationError: a package of fonts is not installed, or ``own`` is no folder.
    """
    found = []
    for package in _PACKAGES:
        # Looked for and not imported: what these packages do at import is not needed.
        spec = find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            raise ConfigurationError(f"The package {package} with fonts is not installed.")
        found.append(Path(next(iter(spec.submodule_search_locations))))
    if own is not None:
        if not own.is_dir():
            raise ConfigurationError(f"BOS_FILES_FONTS_FOLDER: {own} is no folder.")
        found.append(own)
    return found


def families_for(text: str, wanted: str = "") -> tuple[list[str], str]:
    """Font families in order of preference, and the language, for what ``text`` is written in.

    Chinese, Japanese and Korean share characters and write some differently, so the script of
    the rest of the text decides: kana for Japanese, Hangul for Korean.
    """
    language, east = "en", tuple[str, ...](CHINESE)
    if any("\u3040" <= c <= "\u30ff" for c in text):
        language, east = "ja", JAPANESE
    elif any("\uac00" <= c <= "\ud7a3" for c in text):
        language, east = "ko", KOREAN
    elif any("\u4e00" <= c <= "\u9fff" for c in text):
        language = "zh"
    elif any("\u0900" <= c <= "\u097f" for c in text):
        language = "hi"
    own = [wanted] if wanted else []
    return [*own, *DEFAULT, *east], language
