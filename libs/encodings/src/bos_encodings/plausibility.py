"""How plausible a reading of bytes is: by the letters of the languages of an encoding.

``charset-normalizer`` rejects what is no text, but ranks the encodings of short texts by chance.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_MARKS: Final = frozenset("«»“”„‘’‚–—…•€£§°№©®™±²³½¼×·¿¡ªºµ\xa0\u3000")
"""Characters that texts of all languages have."""
_WESTERN: Final = (
    "äöüß", "éèêëàâçùûîïôœæ", "ñáíóúü", "ãõáâàéêíóôúç", "àèéìòù", "åäöæøé", "áéíóúýþæöð", "ëïéèöü",
)  # fmt: skip
_CENTRAL: Final = (
    "ąćęłńóśźż", "áčďéěíňřšťúůýžäĺľŕô", "áéíóöőúüű", "ăâîşţ", "čćđšž", "äöüß",
)  # fmt: skip
_TURKISH: Final = ("çğıöşüâîûi̇",)
_BALTIC: Final = ("ąčęėįšųūž", "āčēģīķļņšūž", "õäöüšž")
_CYRILLIC: Final = (
    "абвгдежзийклмнопрстуфхцчшщъыьэюяё",
    "абвгдежзийклмнопрстуфхцчшщьюяґєіїў",
    "абвгдежзийклмнопрстуфхцчшъьюяјљњћђќѓџѕ",
)
_GREEK: Final = ("αβγδεζηθικλμνξοπρσςτυφχψωάέήίόύώϊϋΐΰ",)
_HEBREW: Final = ("".join(map(chr, range(0x5D0, 0x5EB))),)
_ARABIC: Final = ("".join(map(chr, range(0x621, 0x653))) + "،؛؟پچژگ",)
_THAI: Final = ("".join(map(chr, range(0xE01, 0xE5C))),)

CODECS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "cp949": ("EUC-KR", ()),
    "gb18030": ("GB 18030", ()),
    "big5": ("Big5", ()),
    "cp932": ("Shift JIS", ()),
    "euc_jp": ("EUC-JP", ()),
    "cp1252": ("windows-1252", _WESTERN),
    "cp1250": ("windows-1250", _CENTRAL),
    "cp1251": ("windows-1251", _CYRILLIC),
    "cp1253": ("windows-1253", _GREEK),
    "cp1254": ("windows-1254", _TURKISH),
    "cp1255": ("windows-1255", _HEBREW),
    "cp1256": ("windows-1256", _ARABIC),
    "cp1257": ("windows-1257", _BALTIC),
    "koi8_r": ("KOI8-R", _CYRILLIC),
    "koi8_u": ("KOI8-U", _CYRILLIC),
    "cp866": ("IBM866", _CYRILLIC),
    "iso8859_2": ("ISO-8859-2", _CENTRAL),
    "iso8859_5": ("ISO-8859-5", _CYRILLIC),
    "cp874": ("windows-874", _THAI),
    "cp850": ("IBM850", _WESTERN),
    "cp852": ("IBM852", _CENTRAL),
    "mac_roman": ("macintosh", _WESTERN),
}
"""Encodings that files had before Unicode, the likelier first: codec to its name, and the letters
of each of its languages; supersets stand for what they hold."""

_COMMON: Final = {
    "cp932": ("euc_jp", 0xCF),
    "euc_jp": ("euc_jp", 0xCF),
    "gb18030": ("gb2312", 0xD7),
    "big5": ("big5", 0xC6),
    "cp949": ("euc_kr", 0xC8),
}
"""Character set, and lead byte of the last of its common characters: its first level."""
_SYLLABLES: Final = frozenset(
    "가고구기나는다대도동라로료를리마명목무문미민보부사산상서성수스시아안양에여연영오용우원월위을의이인"
    "일임자장전정제조주지진차천총치코트하한해호화회"
)
"""Of Korean: each text has some."""
_VOWELS: Final = frozenset("аеиоуыэюяёєії")
_FOREIGN_NEIGHBOURS: Final = re.compile(
    r"[a-z][\u0370-\u1fff\u2e80-\uffdc]|[\u0370-\u1fff\u2e80-\uffdc][a-z]"
    r"|[a-z][§°£™©®±²³½¼×¿¡ªº«»„‚“”…•][a-z]|[\u00c0-\u024f][0-9]|[0-9][\u00c0-\u024f]|ς\w|[ךםןףץ][א-ת]"
)
"""What words have not: letters of two scripts, a sign between letters, a final sigma within."""
RARE: Final = {"cp874": 0.05, "iso8859_5": 0.05, "cp850": 0.05, "cp852": 0.05, "mac_roman": 0.05}
"""How much less plausible encodings are that hardly any file is in."""


def implausibility(text: str, codec: str) -> float:
    """How odd ``text`` is for ``codec``: 0 for usual letters, 1 and more for unusual ones."""
    low = text.lower()
    odd = [char for char in low if char > "\x7f" and char not in _MARKS]
    mixed = 0.3 * len(_FOREIGN_NEIGHBOURS.findall(low)) / max(len(odd), 1)
    if not odd:
        return mixed
    languages = CODECS[codec][1]
    mixed += RARE.get(codec, 0.0)
    if not languages:
        rare = sum(not _is_common(char, codec) for char in odd) / len(odd)
        silent = codec == "cp949" and _SYLLABLES.isdisjoint(odd)
        return rare + mixed + (0.4 if silent else 0.0)
    unusual = min(sum(char not in letters for char in odd) for letters in languages) / len(odd)
    if languages is _CYRILLIC:
        unusual += max(0.0, 0.3 - sum(char in _VOWELS for char in odd) / len(odd))
    return unusual + mixed


def is_ascii_with_signs(text: str) -> bool:
    """Whether ``text`` is ASCII but for signs where texts of all languages have them."""
    return all(char <= "\x7f" or char in _MARKS for char in text) and not (
        _FOREIGN_NEIGHBOURS.search(text.lower())
    )


@lru_cache(maxsize=4096)
def _is_common(char: str, codec: str) -> bool:
    charset, last = _COMMON[codec]
    try:
        return char.encode(charset)[0] <= last and not "\uff61" <= char <= "\uff9f"
    except UnicodeEncodeError:
        return False
